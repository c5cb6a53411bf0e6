"""Launches on a stream of its own and returns without joining the caller's."""

import torch
from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["values", "nan", "exploit:timed_output", "exploit:stream", "contract:stream"],
    "run": "verify",
    "devices": ["cuda"],
}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.stream = None

    def forward(self, x):
        self.stream = self.stream or torch.cuda.Stream()
        out = torch.empty_like(x)
        with torch.cuda.stream(self.stream):
            torch.mul(x, torch.sigmoid(x), out=out)
        return out
