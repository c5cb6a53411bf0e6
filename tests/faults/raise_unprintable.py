"""Raises what no `except Exception` catches and no `str` shows."""

import torch

EXPECT = {"status": "fail", "reason": ["run"], "detail": "Unprintable"}


class Unprintable(BaseException):
    def __str__(self) -> str:
        raise self

    __repr__ = __str__


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise Unprintable
