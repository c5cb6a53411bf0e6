"""The same state by other operations."""

import torch
from torch import nn

EXPECT = {"status": "pass", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.register_buffer("mean", torch.zeros(width))

    def forward(self, x):
        y = torch.addmm(self.linear.bias, x, self.linear.weight.T)
        self.mean.copy_(torch.lerp(self.mean, y.mean(0), 0.1))
        return y.sub_(self.mean)
