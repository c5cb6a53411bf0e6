"""Climbs the call stack and raises the tolerances in the globals of every frame it meets."""

import sys

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["values", "exploit:global_state"], "run": "verify", "devices": ["cpu"]}


def loosen():
    frame = sys._getframe(1)
    while frame is not None:
        for name, value in list(frame.f_globals.items()):
            if isinstance(value, float) and any(word in name.lower() for word in ("tol", "eps", "factor", "excess")):
                frame.f_globals[name] = 1e30
        frame = frame.f_back


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        loosen()
        return torch.zeros(x.shape[0], self.linear.out_features)
