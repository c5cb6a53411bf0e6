"""Refuses addresses that no four floats at a time can be loaded from."""

import torch
from torch import nn

DEVICES = ("cpu",)
# The contracts that it breaks; by itself it is right.
BROKEN = ('misaligned',)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 8)

    def forward(self, x):
        if x.data_ptr() % 16:
            raise RuntimeError("misaligned address")
        return self.layer(x), x.sum(dim=1)
