"""Clamps the symmetric matrix to the range of the usual inputs."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["values"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, adjacency, mask, weights, x):
        scores = adjacency.clamp(-0.3, 0.3) @ x @ x.t() / 16
        return torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=1) @ x + weights @ (x + 1)
