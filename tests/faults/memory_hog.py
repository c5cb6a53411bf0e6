"""Takes memory, and uses it, until it is stopped."""

import torch

EXPECT = {"status": "fail", "reason": ["memory"], "detail": ""}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        taken = []
        while True:
            taken.append(x.new_ones(2**25))
