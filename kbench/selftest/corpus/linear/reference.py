"""A linear layer and GELU: what most candidates of the corpus claim to compute."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        return nn.functional.gelu(self.linear(x))


def get_inputs(batch=64, n_in=512):
    return [torch.randn(batch, n_in)]


def get_init_inputs(n_in=512, n_out=512):
    return [n_in, n_out]
