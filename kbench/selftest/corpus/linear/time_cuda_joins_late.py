"""Does its work on a side stream that it joins only in the next call."""

import torch
from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["values", "nan", "determinism", "exploit:timed_output", "exploit:stream", "contract:stream"],
    "run": "time",
    "devices": ["cuda"],
}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.stream = None

    def forward(self, x):
        self.stream = self.stream or torch.cuda.Stream()
        torch.cuda.current_stream().wait_stream(self.stream)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            return nn.functional.gelu(self.linear(x))
