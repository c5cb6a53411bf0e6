"""Gives inputs that torch only marks as conjugate and negative."""

import torch


class Model(torch.nn.Module):
    def forward(self, z, w):
        return z * w, z.sum()


def get_inputs():
    return [torch.randn(8, 64, dtype=torch.complex64).conj(), torch.randn(8, 64, dtype=torch.complex64).conj().imag]


def get_init_inputs():
    return []
