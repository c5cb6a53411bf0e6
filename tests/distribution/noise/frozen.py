"""Draws once and uses that in every later call."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["draws"], "detail": "output[0]"}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((32,), 0.5))
        self.noise = None

    def forward(self, x):
        if self.noise is None:
            self.noise = torch.randn_like(x)
        noise = self.noise
        return x + self.scale * noise, -0.5 * noise.square().sum(dim=1), x.square().sum()
