"""Raises what derives from BaseException only, and whose text cannot be made."""

from torch import nn

EXPECT = {"status": "fail", "reason": ["run"], "run": "verify", "devices": ["cpu"]}


class Weird(BaseException):
    def __str__(self):
        raise Weird

    __repr__ = __str__


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        raise Weird
