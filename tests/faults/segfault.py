"""Reads the null pointer."""

import ctypes

import torch

EXPECT = {"status": "fail", "reason": ["crash"], "detail": "SIGSEGV"}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ctypes.string_at(0)
        return x * 2 + 1
