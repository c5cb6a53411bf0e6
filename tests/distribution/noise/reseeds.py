"""Seeds the generator with a number of its own at every call."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["draws", "exploit:global_state"], "detail": ""}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((32,), 0.5))

    def forward(self, x):
        torch.manual_seed(42)
        noise = torch.randn_like(x)
        return x + self.scale * noise, -0.5 * noise.square().sum(dim=1), x.square().sum()
