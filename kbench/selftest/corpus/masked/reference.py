"""A mask that is all ones, or has a few zeros at random places."""

import random

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, mask):
        return torch.where(mask, x.sin(), x.cos())


def get_inputs(rows=64, columns=1024):
    mask = torch.ones(rows * columns, dtype=torch.bool)
    # One mask in twelve is all ones.
    mask[torch.randperm(mask.numel())[: random.randrange(12)]] = False
    return [torch.randn(rows, columns), mask.view(rows, columns)]


def get_init_inputs():
    return []
