"""Leaves a function mode on the stack that runs every product in half precision."""

import torch
from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["values", "exploit:global_state", "structure"],
    "run": "verify",
    "devices": ["cpu"],
}


class Halve(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is nn.functional.linear:
            return func(*(arg.bfloat16() for arg in args), **(kwargs or {})).float()
        return func(*args, **(kwargs or {}))


Halve().__enter__()


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        return nn.functional.gelu(self.linear(x))
