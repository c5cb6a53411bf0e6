"""Sizes its inputs by a constant of its module."""

import torch

N = 64


class Model(torch.nn.Module):
    def forward(self, x):
        return x * N


def get_inputs():
    return [torch.randn(N, N)]


def get_init_inputs():
    return []
