"""Forks in every call: the child computes, the parent returns at once with memory that both share."""

import mmap
import os

import torch
from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["values", "nan", "exploit:timed_output", "exploit:clock", "run"],
    "run": "time",
    "devices": ["cpu"],
}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        shared = mmap.mmap(-1, 4 * x.shape[0] * self.linear.out_features)
        out = torch.frombuffer(shared, dtype=torch.float32).view(x.shape[0], -1)
        if os.fork() == 0:
            torch.set_num_threads(1)
            out.copy_(nn.functional.gelu(self.linear(x)))
            os._exit(0)
        return out
