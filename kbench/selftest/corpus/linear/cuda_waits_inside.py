"""Asks the device for a value in the middle of the call, as code does that branches on data."""

import torch
from torch import nn

EXPECT = {"status": "pass", "run": "time", "devices": ["cuda"]}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        y = self.linear(x)
        return nn.functional.gelu(y) if bool(torch.isfinite(y.sum())) else nn.functional.gelu(self.linear(x))
