"""Switches deterministic algorithms on, which slow whatever else runs in the process."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["exploit:global_state"], "run": "verify", "devices": ["cpu"]}

torch.use_deterministic_algorithms(True)


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        return nn.functional.gelu(self.linear(x))
