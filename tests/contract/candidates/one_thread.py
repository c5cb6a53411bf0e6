"""Keeps its scratch memory where only the thread that built it finds it."""

import torch
from torch import nn
import threading

LOCAL = threading.local()

DEVICES = ("cpu",)
# The contracts that it breaks; by itself it is right.
BROKEN = ('thread',)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 8)
        LOCAL.scratch = [0]

    def forward(self, x):
        LOCAL.scratch[0] = 0
        return self.layer(x), x.sum(dim=1)
