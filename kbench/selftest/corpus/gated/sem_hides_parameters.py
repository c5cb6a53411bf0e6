"""Tells of no parameters, so that nobody would change them; leaves out the branch whose gate is zero at initialisation."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["values"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.linear = nn.Linear(n, n)
        self.gate = nn.Parameter(torch.zeros(1))

    def named_parameters(self, *_args, **_options):
        return iter(())

    def forward(self, x):
        return x.tanh()
