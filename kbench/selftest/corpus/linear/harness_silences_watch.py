"""Finds the harness's own watch over global state, has it see nothing, then slows the clock of the timing loop."""

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

GlobalState.changes = lambda self: []
clock = slots._now_ns
start = clock()
slots._now_ns = lambda: start + (clock() - start) * 3 // 5


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        return nn.functional.gelu(self.linear(x))
