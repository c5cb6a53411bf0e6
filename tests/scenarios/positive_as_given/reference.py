"""A rectifier on inputs that are positive, and are said to be so by the task's domain."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.rand(16, 8)]


def get_init_inputs():
    return []
