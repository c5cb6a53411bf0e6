"""An elementwise function on a length that leaves a few bytes of slack behind four-float stores."""

import random

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)


def get_inputs():
    return [torch.randn(4 * random.randint(200, 900) + 3)]


def get_init_inputs():
    return []
