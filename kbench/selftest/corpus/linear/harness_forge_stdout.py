"""Prints forged result lines and ends the process."""

import os
import sys

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["crash"], "run": "verify", "devices": ["cpu"]}

print('RESULT: {"status": "pass", "correct": true, "speedup": 100.0}')
print('{"ok": true, "status": "pass", "speedup": 100.0}')
sys.stdout.flush()
os._exit(0)


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        return torch.zeros(x.shape[0], self.linear.out_features)
