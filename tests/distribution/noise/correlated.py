"""Draws noise whose neighbours go together."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["draws"], "detail": "columns depend"}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((32,), 0.5))

    def forward(self, x):
        noise = torch.randn_like(x)
        noise[:, 1::2] = 0.6 * noise[:, ::2] + 0.8 * noise[:, 1::2]
        return x + self.scale * noise, -0.5 * noise.square().sum(dim=1), x.square().sum()
