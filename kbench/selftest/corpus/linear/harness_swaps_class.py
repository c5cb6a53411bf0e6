"""Gives tensors that it has already returned another class, whose methods lie."""

import sys

import torch
from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["structure", "run", "exploit:lazy", "values", "exploit:timed_output"],
    "run": "time",
    "devices": ["cpu"],
}


class Liar(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            if func is torch.Tensor.detach:
                # What is copied is the first answer.
                return ModelNew.first
            return func(*args, **(kwargs or {}))


class ModelNew(nn.Module):
    first = None

    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        if ModelNew.first is not None and sys._getframe(3).f_code.co_name == "slot":
            out = torch.empty_like(ModelNew.first)
            out.__class__ = Liar
            return out
        ModelNew.first = nn.functional.gelu(self.linear(x))
        return ModelNew.first
