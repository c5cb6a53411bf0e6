"""Takes its input for contiguous."""

import torch
from torch import nn

DEVICES = ("cpu",)
# The contracts that it breaks; by itself it is right.
BROKEN = ('strided',)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 8)

    def forward(self, x):
        flat = torch.empty(0).set_(x.untyped_storage(), x.storage_offset(), (x.shape[0], 16), (16, 1))
        return self.layer(flat), flat.sum(dim=1)
