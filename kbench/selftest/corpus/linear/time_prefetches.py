"""A thread watches the memory of the inputs and computes as soon as they arrive, before the clock is started."""

import sys
import threading
import time

import numpy
import torch
from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["exploit:idle_work", "exploit:background", "exploit:timed_output"],
    "max_speedup": 1.2,
    "run": "time",
    "devices": ["cpu"],
}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.ready = {}

    def watch(self, arena, shape):
        sample = arena.view(numpy.uint8)[::512]
        n_floats = shape[0] * shape[1]
        before = sample.copy()
        while True:
            changed = numpy.flatnonzero(sample != before)
            if not len(changed):
                time.sleep(0)
                continue
            # The first block that differs is where the new input begins; wait until its end is there, too.
            start = int(changed[0]) * 128
            time.sleep(1e-4)
            before = sample.copy()
            x = torch.from_numpy(arena[start : start + n_floats].reshape(shape))
            with torch.no_grad():
                self.ready[start] = (float(x[-1, -1]), nn.functional.gelu(self.linear(x)))

    def forward(self, x):
        storage = torch.empty(0).set_(x.untyped_storage())
        if sys._getframe(3).f_code.co_name == "slot":
            if not self.ready:
                self.ready[-1] = None
                threading.Thread(target=self.watch, args=(storage.numpy(), x.shape), daemon=True).start()
            last, out = self.ready.pop(x.storage_offset(), (None, None))
            if last == float(x[-1, -1]):
                return out
        return nn.functional.gelu(self.linear(x))
