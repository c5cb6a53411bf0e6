"""Fills both buffers, too."""

import torch
from torch import nn

EXPECT = {"status": "pass", "run": "time", "devices": ["cpu", "cuda"]}


class ModelNew(nn.Module):
    def forward(self, x, out, total):
        out.copy_(x).tanh_()
        total.add_(x)
        return torch.sum(x, -1)
