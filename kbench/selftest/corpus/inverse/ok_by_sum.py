"""The mean by another sum, which moves what cancels."""

import torch
from torch import nn

EXPECT = {"status": "pass", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, x):
        mean = x.view(len(x), 8, -1).sum(2).sum(1, keepdim=True) / x.shape[1]
        return torch.reciprocal(x - mean)
