"""Computes GELU by hand, in some twenty launches a call."""

import math

import torch
from torch import nn

EXPECT = {"status": "pass", "run": "time", "devices": ["cuda"]}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        columns = [self.linear(part) for part in x.split(8)]
        return torch.cat([0.5 * y * (1.0 + torch.erf(y / math.sqrt(2.0))) for y in columns])
