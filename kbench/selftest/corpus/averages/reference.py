"""Batch normalisation in training: what it gathers of its inputs is part of its result."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(32)

    def forward(self, x):
        return torch.relu(self.norm(x))


def get_inputs():
    return [torch.randn(128, 32)]


def get_init_inputs():
    return []
