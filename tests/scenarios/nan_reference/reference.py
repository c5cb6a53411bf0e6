"""Takes the root of negative numbers."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.sqrt(x)


def get_inputs():
    return [torch.randn(16, 8)]


def get_init_inputs():
    return []
