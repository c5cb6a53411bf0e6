"""Draws for a quarter of the rows and repeats that over the others."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["draws"], "detail": "its rows depend"}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((32,), 0.5))

    def forward(self, x):
        noise = torch.randn(4, 32).repeat(4, 1)
        return x + self.scale * noise, -0.5 * noise.square().sum(dim=1), x.square().sum()
