"""Leaves a process of its own behind, out of its own tree, that keeps a processor busy while the reference is timed."""

import os
import sys

from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["exploit:idle_work", "exploit:clock", "exploit:background"],
    "run": "time",
    "devices": ["cpu"],
}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.started = False

    def forward(self, x):
        if not self.started and sys._getframe(3).f_code.co_name in ("slot", "wake", "wall"):
            self.started = True
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    while True:
                        pass
                os._exit(0)
        return nn.functional.gelu(self.linear(x))
