"""Rows of whole numbers, with a mask that given inputs never use."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, kinds, width):
        super().__init__()
        self.table = nn.Embedding(kinds, width)
        self.linear = nn.Linear(width, width)

    def forward(self, kinds, mask):
        return self.linear((self.table(kinds) * mask.unsqueeze(2)).sum(1))


def get_inputs(rows=64, columns=64):
    return [torch.randint(0, 500, (rows, columns)), torch.ones(rows, columns)]


def get_init_inputs():
    return [500, 128]
