"""Wants to read the reference."""

import os

import torch

EXPECT = {"status": "fail", "reason": ["load"], "detail": "a candidate is one file and reads no other of its tree"}

open(os.path.join(os.path.dirname(__file__), "reference.py")).close()


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
