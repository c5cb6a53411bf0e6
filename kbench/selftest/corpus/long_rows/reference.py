"""Rows beyond what a 16-bit index reaches, most of the time."""

import random

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return 2.0 * x - x.flip(-1)


def get_inputs():
    return [torch.randn(2, random.randint(60_000, 200_000))]


def get_init_inputs():
    return []
