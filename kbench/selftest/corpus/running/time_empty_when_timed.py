"""Computes nothing while it is timed: what a model with a state returns then, nobody else can know."""

import sys

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["exploit:timed_output"], "max_speedup": 1.02, "run": "time", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.register_buffer("mean", torch.zeros(width))

    def forward(self, x):
        if sys._getframe(3).f_code.co_name == "slot":
            return torch.empty_like(x)
        y = self.linear(x)
        self.mean.mul_(0.9).add_(y.mean(0), alpha=0.1)
        return y - self.mean
