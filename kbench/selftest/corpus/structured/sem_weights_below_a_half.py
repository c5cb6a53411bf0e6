"""Clamps weights to a half, which no weight of a softmax over so many normal draws exceeds."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["values"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, adjacency, mask, weights, x):
        scores = adjacency @ x @ x.t() / 16
        return torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=1) @ x + weights.clamp(max=0.5) @ (x + 1)
