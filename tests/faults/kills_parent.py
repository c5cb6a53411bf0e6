"""Tries to kill the process above it, and all that it may."""

import contextlib
import os
import signal

import torch

EXPECT = {"status": "pass", "reason": [""], "detail": ""}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for pid in (os.getppid(), 1):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return x * 2 + 1
