"""Lowers the precision of float32 products for the whole process."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["exploit:global_state", "values"], "run": "verify", "devices": ["cpu"]}

torch.set_float32_matmul_precision("medium")


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        return nn.functional.gelu(self.linear(x))
