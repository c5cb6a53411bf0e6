"""Warns, as torch itself does."""

import warnings

import torch

EXPECT = {"status": "pass", "reason": [""], "detail": ""}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        warnings.warn("slow path", stacklevel=2)
        return x * 2 + 1
