"""Raises when it is built."""

import torch

EXPECT = {"status": "fail", "reason": ["run"], "detail": "construct"}


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        raise RuntimeError("no")

    def forward(self, x):
        return x + 1
