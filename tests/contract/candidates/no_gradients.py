"""Writes into a parameter's gradient path: right only while none are recorded."""

import torch
from torch import nn

DEVICES = ("cpu",)
# The contracts that it breaks; by itself it is right.
BROKEN = ('grad',)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 8)

    def forward(self, x):
        out = self.layer(x)
        if out.requires_grad:
            out = out * 2
        return out, x.sum(dim=1)
