"""Kills its process group, and with it whoever shares that."""

import os
import signal

import torch

EXPECT = {"status": "fail", "reason": ["crash"], "detail": "SIGKILL"}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        os.killpg(0, signal.SIGKILL)
        return x * 2 + 1
