"""One number for the whole input: the order of its elements does not matter."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.exp().log1p().square().mean().sqrt()


def get_inputs(rows=256, columns=1024):
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
