"""Draws right, and gives the number that no draw changes a little too large."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["values"], "detail": "which no draw changes"}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((32,), 0.5))

    def forward(self, x):
        noise = torch.randn_like(x)
        return x + self.scale * noise, -0.5 * noise.square().sum(dim=1), 1.001 * x.square().sum()
