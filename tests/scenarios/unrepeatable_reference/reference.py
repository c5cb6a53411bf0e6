"""Draws from the system's own randomness: no seed makes it repeat."""

import os

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x + int.from_bytes(os.urandom(2), "big")


def get_inputs():
    return [torch.randn(4)]


def get_init_inputs():
    return []
