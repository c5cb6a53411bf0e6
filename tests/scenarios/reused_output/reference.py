"""Returns new memory, and a view of its input."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2, x.t()


def get_inputs():
    return [torch.randn(32, 16)]


def get_init_inputs():
    return []
