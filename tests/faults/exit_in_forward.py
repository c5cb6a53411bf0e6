"""Leaves with success in the middle of a call."""

import os

import torch

EXPECT = {"status": "fail", "reason": ["crash"], "detail": "exit code 0", "output": "last words of an exit"}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("last words of an exit", flush=True)
        os._exit(0)
        return x * 2 + 1
