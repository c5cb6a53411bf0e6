"""Captures a graph over the first input's addresses and replays it for every later input, without copying."""

import torch
from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["values", "nan", "exploit:timed_output", "run"],
    "run": "verify",
    "devices": ["cuda"],
}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.graph = None

    def forward(self, x):
        if self.graph is None:
            self.held = x
            nn.functional.gelu(self.linear(x))
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.out = nn.functional.gelu(self.linear(x))
        self.graph.replay()
        return self.out
