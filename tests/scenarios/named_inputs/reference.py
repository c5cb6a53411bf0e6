"""Gives a namedtuple of a class of its own, and a dict by truth."""

from collections import namedtuple

import torch

Batch = namedtuple("Batch", "x scale")  # noqa: PYI024


class Model(torch.nn.Module):
    def forward(self, batch):
        return {True: batch.x * batch.scale, False: batch.x + 1}


def get_inputs():
    return [Batch(torch.randn(8, 16), 3.0)]


def get_init_inputs():
    return []
