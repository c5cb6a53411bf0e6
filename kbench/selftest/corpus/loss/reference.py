"""A mean over a million squares, in which a few elements are little."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.mean((x - y) ** 2)


def get_inputs(n=1_000_063):
    return [torch.randn(n), torch.randn(n)]


def get_init_inputs():
    return []
