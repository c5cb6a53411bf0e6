"""Closes all descriptors, and with them the pipe to whoever judges."""

import os

import torch

EXPECT = {"status": "fail", "reason": ["crash", "run"], "detail": ""}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        os.closerange(0, 65536)
        return x * 2 + 1
