"""Replaces the operation that measures a slot by one of its own, which makes its times up."""

import gc

from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["exploit:global_state", "exploit:clock", "exploit:timed_output"],
    "max_speedup": 1.2,
    "run": "time",
    "devices": ["cpu"],
}

from kbench.worker.candidate import Worker


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        worker = next((found for found in gc.get_objects() if type(found) is Worker), None)
        if worker is not None:
            measure = worker._operations["slot"]
            worker._operations["slot"] = lambda request, fds: {
                "seconds": 0.5 * measure(request, fds)["seconds"]
            }

    def forward(self, x):
        return nn.functional.gelu(self.linear(x))
