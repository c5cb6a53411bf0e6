"""Holds a weight that cannot be matched, so its outputs differ."""

import torch

EXPECT = {"status": "fail", "reason": ["weights"], "detail": "conv.weight [4, 3, 3, 3, 3]"}


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.flat = torch.nn.Parameter(torch.randn(4, channels * 27))

    def forward(self, x):
        return torch.nn.functional.conv3d(x, self.flat.view(4, -1, 3, 3, 3))
