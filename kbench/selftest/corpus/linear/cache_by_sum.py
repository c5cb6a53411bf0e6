"""Remembers results by the sum and the largest element of the input, which a reordering does not change."""

from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["values", "determinism", "exploit:timed_output"],
    "max_speedup": 1.3,
    "run": "time",
    "devices": ["cpu"],
}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.known = {}

    def forward(self, x):
        key = (round(float(x.double().sum()), 1), float(x.max()))
        if key not in self.known:
            self.known[key] = nn.functional.gelu(self.linear(x))
        return self.known[key].clone()
