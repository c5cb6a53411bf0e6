"""Batch normalisation in training mode: each call updates buffers."""

import torch


class Model(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(channels)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(32, 6) * 3 + 1]


def get_init_inputs():
    return [6]
