"""A product, which any number of threads may compute."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x @ x.t()


def get_inputs():
    return [torch.randn(32, 16)]


def get_init_inputs():
    return []
