"""A linear layer and a sum of each row; the second case has the constructor of the first, and other rows."""

import torch
from torch import nn

CASES = {"default": {}, "odd": {"inputs": {"rows": 33}}}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 8)

    def forward(self, x):
        return self.layer(x), x.sum(dim=1)


def get_inputs(rows=32):
    return [torch.randn(rows, 16)]


def get_init_inputs():
    return []
