"""Sums every row one element after the other in float32: less exact than the reference, and honest."""

import numpy
import torch
from torch import nn

EXPECT = {"status": "pass", "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.from_numpy(numpy.cumsum(x.detach().numpy(), axis=1, dtype=numpy.float32)[:, -1].copy())
