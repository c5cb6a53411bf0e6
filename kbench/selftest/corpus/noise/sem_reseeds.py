"""Reseeds the global generator inside forward with the seed that harnesses are known to use."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["values", "draws"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, x):
        torch.manual_seed(42)
        return x + 0.5 * torch.randn_like(x)
