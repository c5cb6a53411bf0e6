"""Computes the softmax and its mean in full, although the result is constant: the task is at fault."""

import torch
from torch import nn

EXPECT = {"status": "error", "reason": ["reference"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1).mean(-1)
