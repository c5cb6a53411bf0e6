"""Raises when it is called."""

import torch

EXPECT = {"status": "fail", "reason": ["run"], "detail": "ValueError: not today"}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        raise ValueError("not today")
