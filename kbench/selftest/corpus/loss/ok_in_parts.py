"""Sums parts first."""

from torch import nn

EXPECT = {"status": "pass", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, x, y):
        d = x - y
        n = x.numel() // 1000 * 1000
        return (d[:n].view(-1, 1000).square().sum(1).sum() + d[n:].square().sum()) / x.numel()
