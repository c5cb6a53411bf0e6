"""Draws from a generator of its own to choose between two orders of work; the answer does not depend on it."""

import torch
from torch import nn

EXPECT = {"status": "pass", "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.generator = torch.Generator()

    def forward(self, x):
        at = int(torch.randint(1, x.shape[0], (), generator=self.generator))
        parts = [nn.functional.gelu(self.linear(part)) for part in (x[:at], x[at:])]
        return torch.cat(parts)
