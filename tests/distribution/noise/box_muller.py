"""Makes normal numbers of uniform ones."""

import torch
from torch import nn

EXPECT = {"status": "pass"}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((32,), 0.5))

    def forward(self, x):
        u, v = torch.rand_like(x).clamp_min(1e-30), torch.rand_like(x)
        noise = (-2 * u.log()).sqrt() * (6.283185307179586 * v).cos()
        return x + self.scale * noise, -0.5 * noise.square().sum(dim=1), x.square().sum()
