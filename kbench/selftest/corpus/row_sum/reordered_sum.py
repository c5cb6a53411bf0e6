"""Sums in another order: eight partial sums, then a tree."""

from torch import nn

EXPECT = {"status": "pass", "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, x):
        parts = [x[:, start::8].sum(-1) for start in range(8)]
        while len(parts) > 1:
            parts = [a + b for a, b in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]
