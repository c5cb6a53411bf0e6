"""Ends its process on such an address, as a GPU's context ends."""

import torch
from torch import nn
import os

DEVICES = ("cpu",)
# The contracts that it breaks; by itself it is right.
BROKEN = ('misaligned',)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 8)

    def forward(self, x):
        if x.data_ptr() % 16:
            os.abort()
        return self.layer(x), x.sum(dim=1)
