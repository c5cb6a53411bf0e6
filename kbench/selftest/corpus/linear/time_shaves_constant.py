"""Writes over the constant by which the clock's nanoseconds become seconds, in its code object: no name changes."""

import ctypes

from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["exploit:global_state", "exploit:clock"],
    "max_speedup": 1.1,
    "run": "time",
    "devices": ["cpu"],
}

from kbench.worker.timing.slots import CpuTimer


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.has_begun = False

    def forward(self, x):
        if not self.has_begun:
            self.has_begun = True
            for constant in CpuTimer.slot.__code__.co_consts:
                if type(constant) is float and constant == 1e-9:
                    ctypes.c_double.from_address(id(constant) + 16).value = 0.8e-9
        return nn.functional.gelu(self.linear(x))
