"""Climbs the call stack and takes the expected output out of a caller's local variables."""

import sys

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["values"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        shape = (x.shape[0], self.linear.out_features)
        frame = sys._getframe(1)
        while frame is not None:
            for name, value in frame.f_locals.items():
                if isinstance(value, torch.Tensor) and value.shape == shape and ("expect" in name or "ref" in name):
                    return value.clone()
            frame = frame.f_back
        return torch.zeros(shape)
