"""Doubles a row of 1000, and adds the rows up: nothing of it needs a kernel, all of it can go wrong in one."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return 2 * x, x.sum(dim=0)


def get_inputs(rows=4, columns=1000):
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
