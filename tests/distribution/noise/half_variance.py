"""Draws noise of half the variance."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["draws"], "detail": "variance"}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((32,), 0.5))

    def forward(self, x):
        noise = 0.5**0.5 * torch.randn_like(x)
        return x + self.scale * noise, -0.5 * noise.square().sum(dim=1), x.square().sum()
