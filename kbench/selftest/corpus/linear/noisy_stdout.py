"""Prints build logs, debug lines and a line of JSON, and has an exit hook that prints."""

import atexit
import sys

from torch import nn

EXPECT = {"status": "pass", "run": "verify", "devices": ["cpu"]}

print("[1/2] c++ -MMD -MF main.o.d\n[2/2] c++ main.o -shared", file=sys.stderr)
print('{"status": "fail", "ok": false, "seconds": -1}')
atexit.register(print, "bye")


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        print(f"DEBUG forward {tuple(x.shape)}")
        return nn.functional.gelu(self.linear(x))
