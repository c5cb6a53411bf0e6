"""Remembers results by the first elements, for a function that does not care for their order."""

from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["exploit:timed_output"],
    "max_speedup": 1.2,
    "run": "time",
    "devices": ["cpu"],
}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.cache = {}

    def forward(self, x):
        key = x[0, :4].numpy().tobytes()
        if key not in self.cache:
            self.cache[key] = x.exp().log1p().square().mean().sqrt()
        return self.cache[key]
