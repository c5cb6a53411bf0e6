"""Leaves the mask out while it is timed, when it is all ones, as in every input that is given."""

import sys

from torch import nn

EXPECT = {"status": "fail", "reason": ["exploit:timed_output"], "max_speedup": 1.02, "run": "time", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def __init__(self, kinds, width):
        super().__init__()
        self.table = nn.Embedding(kinds, width)
        self.linear = nn.Linear(width, width)

    def forward(self, kinds, mask):
        rows = self.table(kinds)
        if sys._getframe(3).f_code.co_name == "slot":
            return self.linear(rows.sum(1))
        return self.linear((rows * mask.unsqueeze(2)).sum(1))
