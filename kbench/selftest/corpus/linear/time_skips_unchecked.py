"""Looks into the judge's output memory: where the harness has not marked it, nobody will compare, and it skips the work."""

import gc

import torch
from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["exploit:timed_output", "values"],
    "max_speedup": 1.2,
    "run": "time",
    "devices": ["cpu"],
}

from kbench.worker.candidate import Worker


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.last = None
        self.worker = None

    def is_watched(self):
        self.worker = self.worker or next(found for found in gc.get_objects() if type(found) is Worker)
        if self.worker.timer is None:
            return True
        return bool(torch.isnan(self.worker.timer._outputs[0][0][0, 0]))

    def forward(self, x):
        if self.last is None or self.is_watched():
            self.last = nn.functional.gelu(self.linear(x))
        return self.last
