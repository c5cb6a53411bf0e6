"""Leaves the caller's tensor transposed, with another dimension."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["mutation"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        result = nn.functional.gelu(self.linear(x))
        x.t_()
        x.unsqueeze_(0)
        return result
