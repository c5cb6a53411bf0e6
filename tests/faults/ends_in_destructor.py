"""Crashes when it is thrown away."""

import ctypes

import torch

EXPECT = {"status": "pass", "reason": [""], "detail": ""}


class End:
    def __del__(self) -> None:
        ctypes.string_at(0)


class ModelNew(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.end = End()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1
