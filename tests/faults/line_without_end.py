"""Writes a message that never ends to every descriptor."""

import contextlib
import os

import torch

EXPECT = {"status": "fail", "reason": ["exploit:forged_message", "crash", "run", "timeout"], "detail": ""}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while True:
            for fd in range(3, 64):
                with contextlib.suppress(OSError):
                    os.set_blocking(fd, False)
                    os.write(fd, b"[" * 2**16)
