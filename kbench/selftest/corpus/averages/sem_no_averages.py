"""Normalises, and leaves the running averages as they were."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["state"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(32)

    def forward(self, x):
        return torch.relu(nn.functional.batch_norm(x, None, None, self.norm.weight, self.norm.bias, training=True))
