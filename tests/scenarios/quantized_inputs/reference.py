"""Gives a tensor that has no plain storage."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x.dequantize() * 2


def get_inputs():
    return [torch.quantize_per_tensor(torch.randn(8, 16), 0.1, 0, torch.qint8)]


def get_init_inputs():
    return []
