"""Turns autocast and oneDNN off for its own product, and back as they were."""

import torch
from torch import nn

EXPECT = {"status": "pass", "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        with torch.autocast("cpu", enabled=False), torch.backends.mkldnn.flags(enabled=False):
            return nn.functional.gelu(self.linear(x))
