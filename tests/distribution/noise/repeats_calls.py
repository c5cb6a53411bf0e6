"""Draws at every second call only."""

import torch
from torch import nn

# Whether its draws return or miss the seed depends on how many calls were made.
EXPECT = {"status": "fail", "reason": ["draws"], "detail": ""}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((32,), 0.5))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls % 2:
            self.noise = torch.randn_like(x)
        noise = self.noise
        return x + self.scale * noise, -0.5 * noise.square().sum(dim=1), x.square().sum()
