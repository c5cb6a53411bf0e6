"""Holds no buffers that could be updated."""

import torch

EXPECT = {"status": "pass", "warning": "the candidate has nothing that matches"}


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()

    def forward(self, x):
        return torch.nn.functional.batch_norm(x, None, None, training=True)
