"""Gives the density of another draw than the one it gives."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["draws"], "detail": "do not belong together"}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((32,), 0.5))

    def forward(self, x):
        noise, other = torch.randn_like(x), torch.randn_like(x)
        return x + self.scale * noise, -0.5 * other.square().sum(dim=1), x.square().sum()
