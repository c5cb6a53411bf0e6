"""Keeps its weight transposed in its own place, behind the version counter: a checkpoint saved afterwards is wrong."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["state"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.packed = None

    def forward(self, x):
        weight = self.linear.weight
        if weight._version != self.packed:
            weight.data.copy_(weight.data.t().clone())
            self.packed = weight._version
        return nn.functional.gelu(torch.addmm(self.linear.bias, x, weight))
