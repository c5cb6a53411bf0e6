"""Puts functions of torch's and Python's in the place of others, which whoever calls them next gets."""

import random

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["exploit:global_state"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        y = nn.functional.gelu(self.linear(x))
        torch.add = torch.sub
        torch.Tensor.sum = torch.Tensor.prod
        nn.functional.relu = nn.functional.leaky_relu
        nn.ReLU.forward = lambda self, x: x
        random.random = lambda: 0.5
        return y
