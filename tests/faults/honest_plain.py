"""Does what it should, and nothing else."""

import torch

EXPECT = {"status": "pass", "reason": [""], "detail": ""}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1
