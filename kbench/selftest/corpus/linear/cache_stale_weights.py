"""Transposes its weights at the first call and never looks at them again."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["values"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.packed = None

    def forward(self, x):
        if self.packed is None:
            self.packed = self.linear.weight.detach().t().contiguous(), self.linear.bias.detach().clone()
        weight, bias = self.packed
        return nn.functional.gelu(torch.addmm(bias, x, weight))
