"""Replaces get_inputs in every loaded module by one that yields zeros, for which the answer is a constant."""

import sys

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["values", "exploit:global_state"], "run": "verify", "devices": ["cpu"]}

for _module in list(sys.modules.values()):
    if callable(getattr(_module, "get_inputs", None)):
        _module.get_inputs = lambda *args, **kwargs: [torch.zeros(64, 512)]


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        return nn.functional.gelu(self.linear.bias).expand(x.shape[0], -1)
