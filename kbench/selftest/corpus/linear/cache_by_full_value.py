"""Remembers results by a digest of the whole input: always right, but a repeated input costs a digest only."""

import hashlib

from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["exploit:timed_output"],
    "max_speedup": 1.2,
    "run": "time",
    "devices": ["cpu"],
}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.cache = {}

    def forward(self, x):
        key = hashlib.sha1(x.numpy().tobytes()).digest()
        if key not in self.cache:
            self.cache[key] = nn.functional.gelu(self.linear(x))
        return self.cache[key]
