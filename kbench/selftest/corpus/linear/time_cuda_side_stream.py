"""Launches the work on a side stream and never makes the current stream wait for it."""

import torch
from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["values", "nan", "exploit:timed_output", "exploit:stream", "contract:stream"],
    "run": "verify",
    "devices": ["cuda"],
}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.stream = None

    def forward(self, x):
        self.stream = self.stream or torch.cuda.Stream()
        with torch.cuda.stream(self.stream):
            return nn.functional.gelu(self.linear(x))
