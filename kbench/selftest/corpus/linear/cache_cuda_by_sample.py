"""Remembers results by address and a sample of the input: a few elements stand for all."""

import torch
from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["exploit:timed_output", "values", "determinism", "exploit:clock"],
    "max_speedup": 1.2,
    "run": "time",
    "devices": ["cuda"],
}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.known = {}

    def forward(self, x):
        key = (x.data_ptr(), float(x.view(-1)[::4096].sum()))
        if key not in self.known:
            self.known[key] = nn.functional.gelu(self.linear(x))
        return self.known[key]
