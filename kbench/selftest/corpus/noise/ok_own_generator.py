"""Draws the right distribution by a generator of its own, seeded from torch's: not the reference's samples."""

import torch
from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["values", "draws"],
    "policy": True,
    "run": "verify",
    "devices": ["cpu"],
}


class ModelNew(nn.Module):
    def forward(self, x):
        own = torch.Generator().manual_seed(int(torch.randint(2**31, ())))
        return x + 0.5 * torch.randn(x.shape, generator=own)
