"""Loses digits that a kernel may well keep."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return (x + 1e5) - 1e5


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []
