"""Remembers results by the input's address and shape."""

from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["values", "determinism", "exploit:timed_output"],
    "run": "verify",
    "devices": ["cpu"],
}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.cache = {}

    def forward(self, x):
        key = (x.data_ptr(), x.shape)
        if key not in self.cache:
            self.cache[key] = nn.functional.gelu(self.linear(x))
        return self.cache[key]
