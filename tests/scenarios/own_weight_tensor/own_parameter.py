"""Holds a parameter of its own name and its own values, of the same shape: the reference's are copied in."""

import torch

EXPECT = {"status": "pass", "warning": "weights copied from the reference, matched by order: weight"}


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, channels, 3, 3, 3))

    def forward(self, x):
        return torch.nn.functional.conv3d(x, self.weight)
