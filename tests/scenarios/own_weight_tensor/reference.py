"""A convolution without bias."""

import torch


class Model(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = torch.nn.Conv3d(channels, 4, 3, bias=False)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(2, 3, 6, 6, 6)]


def get_init_inputs():
    return [3]
