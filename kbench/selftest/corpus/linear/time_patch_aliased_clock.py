"""Swaps every alias of a clock in all loaded modules for one that runs 50 times too slow."""

import sys
import time

from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["exploit:global_state", "exploit:clock"],
    "run": "time",
    "devices": ["cpu"],
}

CLOCKS = (time.perf_counter, time.perf_counter_ns, time.monotonic, time.monotonic_ns)


def slowed(clock):
    start = clock()
    return lambda: start + type(start)((clock() - start) / 50)


for _module in list(sys.modules.values()):
    for _name, _value in list(vars(_module).items()):
        if _module is not time and _name != "CLOCKS" and any(_value is clock for clock in CLOCKS):
            setattr(_module, _name, slowed(_value))


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        return nn.functional.gelu(self.linear(x))
