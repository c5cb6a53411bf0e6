"""Splits float32 into three bfloat16 parts and sums six partial products: about as exact as float32."""

import torch
from torch import nn

EXPECT = {"status": "pass", "run": "verify", "devices": ["cpu"]}


def split(x):
    high = x.bfloat16()
    middle = (x - high.float()).bfloat16()
    low = (x - high.float() - middle.float()).bfloat16()
    return high.float(), middle.float(), low.float()


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(n_in, n_out))

    def forward(self, x):
        a, b = split(x), split(self.weight)
        return sum(a[i] @ b[j] for i, j in ((0, 2), (2, 0), (1, 1), (0, 1), (1, 0), (0, 0)))
