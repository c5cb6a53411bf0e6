"""Replaces the builtins on which a verdict may rest."""

import builtins

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["values", "exploit:global_state"], "run": "verify", "devices": ["cpu"]}

builtins.all = lambda *args, **kwargs: True
builtins.abs = lambda value: value * 0


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        return torch.zeros(x.shape[0], self.linear.out_features)
