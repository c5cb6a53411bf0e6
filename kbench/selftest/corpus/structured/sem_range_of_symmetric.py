"""Clamps the symmetric matrix to the range of the usual inputs."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["values"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, adjacency, mask, weights, x):
        scores = adjacency.clamp(-0.45, 0.45) @ x @ x.t()
        return torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=1) @ x + weights @ (x + 1)
