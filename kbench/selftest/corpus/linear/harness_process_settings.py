"""Rounds all that comes later upwards, ignores signals, and lets everyone write what comes later."""

import ctypes
import os
import signal

from torch import nn

EXPECT = {"status": "fail", "reason": ["exploit:global_state"], "run": "verify", "devices": ["cpu"]}

UPWARD = 0x800


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        y = nn.functional.gelu(self.linear(x))
        ctypes.CDLL("libm.so.6").fesetround(UPWARD)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.umask(0)
        return y
