"""Counts its calls outside of parameters and buffers, and scales otherwise from the seventh one on, which is no trial's."""

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * (0.5 if self.calls < 7 else 1.0)


def get_inputs():
    return [torch.randn(64, 16)]


def get_init_inputs():
    return []
