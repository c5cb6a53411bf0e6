"""Gives each what belongs to the other."""

import torch

EXPECT = {"status": "fail", "reason": ["shape"]}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return {"double": {1: x + x, "b": x.mean()}, "sum": torch.sum(x, -1)}
