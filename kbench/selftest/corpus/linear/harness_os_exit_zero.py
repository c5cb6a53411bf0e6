"""Ends the process with exit code 0 at import."""

import os

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["crash"], "run": "verify", "devices": ["cpu"]}

os._exit(0)


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        return torch.zeros(x.shape[0], self.linear.out_features)
