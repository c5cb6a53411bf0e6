"""Gives an instance of a class that no candidate has."""

from dataclasses import dataclass

import torch


@dataclass
class Batch:
    x: torch.Tensor
    scale: float


class Model(torch.nn.Module):
    def forward(self, batch):
        return batch.x * batch.scale


def get_inputs():
    return [Batch(torch.randn(8, 16), 3.0)]


def get_init_inputs():
    return []
