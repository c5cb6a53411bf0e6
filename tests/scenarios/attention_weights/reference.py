"""Attention with three projections of one shape."""

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q = torch.nn.Linear(16, 16, bias=False)
        self.k = torch.nn.Linear(16, 16, bias=False)
        self.v = torch.nn.Linear(16, 16, bias=False)

    def forward(self, x):
        return torch.softmax(self.q(x) @ self.k(x).mT, -1) @ self.v(x)


def get_inputs():
    return [torch.randn(2, 8, 16)]


def get_init_inputs():
    return []
