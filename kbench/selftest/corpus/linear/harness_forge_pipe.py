"""Writes a forged result into every inherited pipe or socket, then ends the process."""

import json
import os

import torch
from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["crash", "exploit:forged_message"],
    "run": "verify",
    "devices": ["cpu"],
}

_forged = {"ok": True, "status": "pass", "passed": True, "correct": True, "changed": [], "seconds": 1e-9}
for _fd in range(1, 64):
    try:
        os.write(_fd, (json.dumps(_forged) + "\n").encode())
    except OSError:
        continue
os._exit(0)


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        return torch.zeros(x.shape[0], self.linear.out_features)
