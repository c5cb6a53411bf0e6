"""Remembers the inputs of the first pass by identity, computes them all at the first repeated call, then serves a table."""

import torch
from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["values", "determinism", "exploit:timed_output", "exploit:clock"],
    "max_speedup": 1.2,
    "run": "time",
    "devices": ["cpu"],
}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.inputs = {}
        self.table = {}

    def forward(self, x):
        if id(x) in self.table:
            return self.table[id(x)]
        if id(x) in self.inputs:
            batch = nn.functional.gelu(self.linear(torch.cat(list(self.inputs.values()))))
            self.table = dict(zip(self.inputs, batch.split(x.shape[0]), strict=True))
            return self.table[id(x)]
        # Held, so that no later input gets its identity.
        self.inputs[id(x)] = x
        return nn.functional.gelu(self.linear(x))
