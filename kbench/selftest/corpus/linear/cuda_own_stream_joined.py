"""Works on a stream of its own that waits for the caller's and that the caller's waits for."""

import torch
from torch import nn

EXPECT = {"status": "pass", "run": "time", "devices": ["cuda"]}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.stream = None

    def forward(self, x):
        current = torch.cuda.current_stream()
        self.stream = self.stream or torch.cuda.Stream()
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            out = nn.functional.gelu(self.linear(x))
        current.wait_stream(self.stream)
        out.record_stream(current)
        return out
