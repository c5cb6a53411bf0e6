"""Wants to build a file that lies beside it."""

import os

import torch
from torch.utils.cpp_extension import load

EXPECT = {"status": "fail", "reason": ["load"], "detail": "a candidate is one file and reads no other of its tree"}

load(name="beside", sources=[os.path.join(os.path.dirname(__file__), "source_beside.cpp")])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
