"""Raises what claims to come from everywhere at once."""

import torch

EXPECT = {"status": "fail", "reason": ["run"], "detail": "Lying"}


class Lying(Exception):
    @property
    def __traceback__(self) -> object:
        raise KeyboardInterrupt


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise Lying
