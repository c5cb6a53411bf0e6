"""Takes the worker's look-out for changes away from the instance, then slows the clock that the worker uses."""

import gc
import time

from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["exploit:global_state", "exploit:clock"],
    "max_speedup": 1.2,
    "run": "time",
    "devices": ["cpu"],
}

from kbench.worker.globals import GlobalState
from kbench.worker.timing import slots


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        for found in gc.get_objects():
            if type(found) is GlobalState:
                found.changes = lambda: []
        start = time.perf_counter_ns()
        slots._now_ns = lambda: start + (time.perf_counter_ns() - start) // 2

    def forward(self, x):
        return nn.functional.gelu(self.linear(x))
