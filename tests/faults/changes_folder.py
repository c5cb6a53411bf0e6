"""Goes to another folder."""

import os

import torch

EXPECT = {"status": "fail", "reason": ["exploit:global_state"], "detail": "working folder"}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        os.chdir("/")
        return x * 2 + 1
