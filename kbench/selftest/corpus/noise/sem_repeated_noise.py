"""Draws noise for a quarter of the rows and repeats it over the others."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["values", "draws"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, x):
        return x + 0.5 * torch.randn(x.shape[0] // 4, x.shape[1]).repeat(4, 1)
