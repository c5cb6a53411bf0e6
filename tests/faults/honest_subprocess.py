"""Runs a program and waits for it."""

import subprocess

import torch

EXPECT = {"status": "pass", "reason": [""], "detail": ""}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        told = subprocess.run(["echo", "2"], capture_output=True, text=True, check=True).stdout
        return x * int(told) + 1
