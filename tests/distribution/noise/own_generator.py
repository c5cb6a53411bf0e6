"""Draws by a generator of its own, seeded from torch's at every call."""

import torch
from torch import nn

EXPECT = {"status": "pass"}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((32,), 0.5))

    def forward(self, x):
        own = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
        noise = torch.randn(x.shape, generator=own)
        return x + self.scale * noise, -0.5 * noise.square().sum(dim=1), x.square().sum()
