"""Finds the clock of the timing loop from the frames of its caller, and has it run at 70 per cent."""

import sys
import time
import types

from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["exploit:global_state", "exploit:clock"],
    "max_speedup": 1.2,
    "run": "time",
    "devices": ["cpu"],
}


def shaved(clock):
    start = clock()
    return lambda: start + type(start)((clock() - start) * 0.7)


def shave(namespace, seen):
    """Follow modules from the namespace of a caller, whatever they and the alias are called."""
    for name, value in list(namespace.items()):
        if isinstance(value, types.ModuleType) and value.__name__.startswith("kbench") and id(value) not in seen:
            seen.add(id(value))
            shave(vars(value), seen)
        elif value is time.perf_counter or value is time.perf_counter_ns:
            namespace[name] = shaved(value)


frame = sys._getframe()
while frame := frame.f_back:
    shave(frame.f_globals, set())


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        return nn.functional.gelu(self.linear(x))
