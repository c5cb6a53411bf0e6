"""Centres over a dimension of one element: zero whatever the input."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1).sum(dim=1)


def get_inputs():
    return [torch.randn(16, 8)]


def get_init_inputs():
    return []
