"""Raises in its constructor."""

import torch

EXPECT = {"status": "fail", "reason": ["run"], "detail": "construct: raise_in_constructor.py:11: ValueError: no kernel today"}


class ModelNew(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        raise ValueError("no kernel today")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1
