"""Leaves with success while it is imported."""

import os

import torch

EXPECT = {"status": "fail", "reason": ["crash"], "detail": "exit code 0"}

os._exit(0)


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1
