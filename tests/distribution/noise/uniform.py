"""Draws uniform noise of the right mean and variance."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["draws"], "detail": ""}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((32,), 0.5))

    def forward(self, x):
        noise = 12**0.5 * (torch.rand_like(x) - 0.5)
        return x + self.scale * noise, -0.5 * noise.square().sum(dim=1), x.square().sum()
