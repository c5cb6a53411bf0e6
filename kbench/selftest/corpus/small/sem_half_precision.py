"""Multiplies in half precision; the outputs are so small that the error hides below the absolute tolerance."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["values"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(n_in, n_out))

    def forward(self, x):
        return (x.half() @ self.weight.half()).float()
