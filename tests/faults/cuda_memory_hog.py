"""Takes the GPU's memory piece by piece."""

import torch

EXPECT = {"status": "fail", "reason": ["memory"], "detail": ""}
DEVICES = ("cuda",)


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        taken = []
        while True:
            taken.append(x.new_empty(2**28))
