"""Inverse distances from the mean: float32 gives some elements badly and nearly all of them well."""

from torch import nn

import torch


class Model(nn.Module):
    def forward(self, x):
        return 1.0 / (x - x.mean(-1, keepdim=True))


def get_inputs(rows=128, columns=128):
    return [torch.randn(rows, columns) + 10.0]


def get_init_inputs():
    return []
