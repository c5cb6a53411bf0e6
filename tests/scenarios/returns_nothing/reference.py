"""Forgets to return what it computes."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        x * 2


def get_inputs():
    return [torch.randn(16, 16)]


def get_init_inputs():
    return []
