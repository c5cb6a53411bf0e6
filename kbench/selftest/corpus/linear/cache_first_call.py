"""Computes once and returns that result ever after."""

from torch import nn

EXPECT = {"status": "fail", "reason": ["values"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.first = None

    def forward(self, x):
        if self.first is None:
            self.first = nn.functional.gelu(self.linear(x))
        return self.first
