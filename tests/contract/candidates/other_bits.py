"""Adds noise far below the tolerance."""

import torch
from torch import nn
import os

DEVICES = ("cpu",)
# The contracts that it breaks; by itself it is right.
BROKEN = ('bitwise',)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 8)

    def forward(self, x):
        noise = (int.from_bytes(os.urandom(3), "little") / 2**24 - 0.5) * 1e-6
        return self.layer(x) + noise, x.sum(dim=1)
