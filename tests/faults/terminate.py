"""Ends as by a C++ exception that nobody catches."""

import ctypes

import torch

EXPECT = {"status": "fail", "reason": ["crash"], "detail": "SIGABRT"}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ctypes.CDLL("libstdc++.so.6")._ZSt9terminatev()
        return x * 2 + 1
