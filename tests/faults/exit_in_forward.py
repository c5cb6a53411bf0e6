"""Leaves with success in the middle of a call."""

import os

import torch

EXPECT = {"status": "fail", "reason": ["crash"], "detail": "exit code 0"}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        os._exit(0)
        return x * 2 + 1
