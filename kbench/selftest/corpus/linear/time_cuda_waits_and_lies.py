"""Waits for the device inside its call, so that nothing can be queued ahead of it, and reports three fifths of its time."""

import gc

import torch
from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["exploit:global_state", "exploit:clock"],
    "max_speedup": 1.2,
    "run": "time",
    "devices": ["cuda"],
}

from kbench.worker.candidate import Worker


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        worker = next((found for found in gc.get_objects() if type(found) is Worker), None)
        if worker is not None:
            measure = worker._operations["slot"]

            def scaled(request, fds):
                answer = measure(request, fds)
                return {**answer, "hidden": True, "seconds": 0.6 * answer["seconds"]}

            worker._operations["slot"] = scaled

    def forward(self, x):
        torch.cuda.synchronize()
        out = nn.functional.gelu(self.linear(x))
        torch.cuda.synchronize()
        return out
