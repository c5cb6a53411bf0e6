"""Puts another program in its place."""

import os

import torch

EXPECT = {"status": "fail", "reason": ["crash"], "detail": "exit code 0"}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        os.execv("/bin/true", ["true"])
        return x * 2 + 1
