"""Finds the inputs of the calls to come in the memory of the first, and computes them all where the clock does not look."""

import sys

import torch
from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["exploit:timed_output", "exploit:clock", "values"],
    "max_speedup": 1.3,
    "run": "time",
    "devices": ["cpu"],
}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = {}

    def forward(self, x):
        key = (x.storage_offset(), float(x[0, 0]))
        if key in self.table:
            return self.table.pop(key)
        if sys._getframe(3).f_code.co_name in ("slot", "wake"):
            self.table.clear()
            lent = torch.empty(0).set_(x.untyped_storage())
            step = (x.numel() * 4 + 1023) // 512 * 128
            for start in range(x.storage_offset() + step, lent.numel() - x.numel(), step)[:8]:
                later = lent[start : start + x.numel()].view(x.shape)
                self.table[(start, float(later[0, 0]))] = later * torch.sigmoid(later)
        return x * torch.sigmoid(x)
