"""Clamps to the range of the usual inputs before it computes."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["values"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.clamp(-8.0, 8.0)
        return x * torch.sigmoid(x)
