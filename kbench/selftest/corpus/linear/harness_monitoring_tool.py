"""Registers a tool with sys.monitoring, which sees every line of the harness and no trace function shows."""

import sys

from torch import nn

EXPECT = {"status": "fail", "reason": ["exploit:global_state"], "run": "verify", "devices": ["cpu"]}


def spy(code, offset):
    return None


if hasattr(sys, "monitoring"):
    sys.monitoring.use_tool_id(3, "spy")
    sys.monitoring.register_callback(3, sys.monitoring.events.PY_START, spy)
    sys.monitoring.set_events(3, sys.monitoring.events.PY_START)
else:
    sys.settrace(lambda *_: None)


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        return nn.functional.gelu(self.linear(x))
