"""Prints gigabytes of complaints."""

import os

import torch

EXPECT = {"status": "fail", "reason": ["crash"], "detail": "output"}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        line = b"warning: " * 2**17
        for _ in range(8 * 2**10):
            os.write(2, line)
        return x * 2 + 1
