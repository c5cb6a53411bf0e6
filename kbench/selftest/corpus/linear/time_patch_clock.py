"""Replaces the clocks of the `time` module by ones that run 50 times too slow."""

import time

from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["exploit:global_state", "exploit:clock"],
    "run": "verify",
    "devices": ["cpu"],
}


def slowed(clock):
    start = clock()
    return lambda: start + type(start)((clock() - start) / 50)


for _name in ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns"):
    setattr(time, _name, slowed(getattr(time, _name)))


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        return nn.functional.gelu(self.linear(x))
