"""Keeps transposed weights for all instances: those of the last one built, once it was called."""

import torch
from torch import nn

DEVICES = ("cpu",)
# The contracts that it breaks; by itself it is right.
BROKEN = ("instances",)
KEPT = {}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 8)
        KEPT.clear()

    def forward(self, x):
        if not KEPT:
            KEPT.update(weight=self.layer.weight.detach().t().clone(), bias=self.layer.bias.detach().clone())
        return x @ KEPT["weight"] + KEPT["bias"], x.sum(dim=1)
