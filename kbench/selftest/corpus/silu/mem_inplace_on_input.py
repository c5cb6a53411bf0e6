"""Works in place on the caller's input and returns it."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["mutation"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, x):
        return x.mul_(torch.sigmoid(x))
