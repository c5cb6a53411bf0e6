"""Counts from the seed alone: every call after a seed draws the same."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["draws"], "detail": "one call's draws return"}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((32,), 0.5))

    def forward(self, x):
        own = torch.Generator().manual_seed(torch.initial_seed())
        noise = torch.randn(x.shape, generator=own)
        return x + self.scale * noise, -0.5 * noise.square().sum(dim=1), x.square().sum()
