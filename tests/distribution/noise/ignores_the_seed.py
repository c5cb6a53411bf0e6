"""Draws from the system: right, but two calls under one seed differ."""

import os

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["draws"], "detail": "ignores the seed"}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((32,), 0.5))

    def forward(self, x):
        own = torch.Generator().manual_seed(int.from_bytes(os.urandom(7), "little"))
        noise = torch.randn(x.shape, generator=own)
        return x + self.scale * noise, -0.5 * noise.square().sum(dim=1), x.square().sum()
