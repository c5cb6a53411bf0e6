"""Adds Gaussian noise, and gives the log density of what it drew and a number that no draw changes."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((32,), 0.5))

    def forward(self, x):
        noise = torch.randn_like(x)
        return x + self.scale * noise, -0.5 * noise.square().sum(dim=1), x.square().sum()


def get_inputs(rows=16, columns=32):
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
