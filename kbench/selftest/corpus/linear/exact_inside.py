"""Computes in float64 and rounds once: more accurate than the reference."""

from torch import nn

EXPECT = {"status": "pass", "run": "verify", "devices": ["cpu", "cuda"]}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        y = nn.functional.linear(x.double(), self.linear.weight.double(), self.linear.bias.double())
        return nn.functional.gelu(y).float()
