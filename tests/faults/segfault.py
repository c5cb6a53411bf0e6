"""Reads the null pointer."""

import ctypes

import torch

EXPECT = {"status": "fail", "reason": ["crash"], "detail": "SIGSEGV", "output": "last words of a segfault"}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("last words of a segfault", flush=True)
        ctypes.string_at(0)
        return x * 2 + 1
