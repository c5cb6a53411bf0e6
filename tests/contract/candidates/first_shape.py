"""Keeps the size that it met first."""

import torch
from torch import nn

DEVICES = ("cpu",)
# The contracts that it breaks; by itself it is right.
BROKEN = ('shapes',)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 8)
        self.rows = None

    def forward(self, x):
        if self.rows is None:
            self.rows = x.shape[0]
        total = x.sum(dim=1)
        total[self.rows :] = 0
        return self.layer(x), total
