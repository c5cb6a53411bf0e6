"""Runs its arithmetic through torch.jit.script."""

import torch
from torch import nn

EXPECT = {"status": "pass", "run": "verify", "devices": ["cpu"]}


@torch.jit.script
def bias_gelu(y: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    y = y + bias
    return 0.5 * y * (1.0 + torch.erf(y * 0.7071067811865476))


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        return bias_gelu(x @ self.linear.weight.t(), self.linear.bias)
