"""Works on the caller's input in place, but only in the timed loop, where nobody compares inputs."""

import sys

from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["mutation", "exploit:timed_input", "exploit:timed_output"],
    "run": "time",
    "devices": ["cpu"],
}


class ModelNew(nn.Module):
    def forward(self, x):
        timed = sys._getframe(3).f_code.co_name in ("slot", "_measure")
        return nn.functional.silu(x, inplace=timed)
