"""Integers as outputs: values rounded to eight bits, and the places of the largest of counts that are often equal."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, counts):
        scale = x.abs().amax(dim=1, keepdim=True) / 127
        return (x / scale).round().to(torch.int8), torch.topk(counts, 5, dim=1).indices


def get_inputs(rows=256, columns=2048):
    return [torch.randn(rows, columns), torch.randint(0, 50, (16, 200))]


def get_init_inputs():
    return []
