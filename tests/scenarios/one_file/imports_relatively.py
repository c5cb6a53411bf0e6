"""Wants to import a file that lies beside it, by its place."""

import torch

EXPECT = {"status": "fail", "reason": ["load"], "detail": "a candidate is one file and reads no other of its tree"}

from . import loads_beside  # noqa: F401


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
