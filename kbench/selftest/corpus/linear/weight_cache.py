"""Keeps a transposed copy of the weights and renews it whenever their address or version changes."""

import torch
from torch import nn

EXPECT = {"status": "pass", "run": "time", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.key = self.transposed = None

    def forward(self, x):
        weight = self.linear.weight
        key = (weight.data_ptr(), weight._version)
        if self.key != key:
            self.key, self.transposed = key, weight.detach().t().contiguous()
        return nn.functional.gelu(torch.addmm(self.linear.bias, x, self.transposed))
