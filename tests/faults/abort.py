"""Aborts."""

import os

import torch

EXPECT = {"status": "fail", "reason": ["crash"], "detail": "SIGABRT"}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        os.abort()
        return x * 2 + 1
