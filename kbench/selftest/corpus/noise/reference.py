"""Adds Gaussian noise."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x + 0.5 * torch.randn_like(x)


def get_inputs(rows=64, columns=256):
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
