"""Batch normalisation at inference, times a table."""

import torch


class Model(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(channels)
        self.eval()

    def forward(self, x):
        return self.norm(x) * torch.arange(x.shape[0], dtype=torch.float32)[:, None].cos()


def get_inputs():
    return [torch.randn(33, 16)]


def get_init_inputs():
    return [16]
