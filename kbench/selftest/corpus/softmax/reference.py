"""A softmax on rows that rarely leave [-4, 4]."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)


def get_inputs(rows=64, columns=257):
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
