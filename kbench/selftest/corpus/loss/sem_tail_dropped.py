"""Sums whole vectors of 64 and leaves the tail out."""

from torch import nn

EXPECT = {"status": "fail", "reason": ["values"], "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, x, y):
        n = x.numel() // 64 * 64
        return ((x[:n] - y[:n]) ** 2).sum() / x.numel()
