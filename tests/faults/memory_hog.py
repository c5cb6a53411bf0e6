"""Takes memory, and uses it, until it is stopped."""

import torch

EXPECT = {"status": "fail", "reason": ["memory"], "detail": "", "output": "last words of a hog"}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("last words of a hog", flush=True)
        taken = []
        while True:
            taken.append(x.new_ones(2**25))
