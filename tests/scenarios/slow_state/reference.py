"""Centres by a mean that moves so slowly that no two calls in a row differ by more than the tolerance."""

import torch


class Model(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.register_buffer("centre", torch.zeros(channels))

    def forward(self, x):
        self.centre.lerp_(x.mean(0), 2e-5)
        return x - self.centre


def get_inputs():
    return [torch.randn(64, 16) + 1]


def get_init_inputs():
    return [16]
