"""Writes garbage to every descriptor."""

import contextlib
import os

import torch

EXPECT = {"status": "fail", "reason": ["exploit:forged_message", "crash", "run"], "detail": ""}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for fd in range(3, 64):
            with contextlib.suppress(OSError):
                os.set_blocking(fd, False)
                os.write(fd, os.urandom(2**12) + b"\n")
        return x * 2 + 1
