"""Forks as fast as it can from beside a GPU, where root stays root; its powder lasts for 2000 processes and a minute."""

import contextlib
import os
import time

import torch

EXPECT = {"status": "fail", "reason": ["crash"], "detail": "processes"}
DEVICES = ("cuda",)


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        powder, fill = os.pipe()
        os.write(fill, bytes(2000))
        os.set_blocking(powder, False)
        end_s = time.monotonic() + 60
        with contextlib.suppress(OSError):
            while os.read(powder, 1):
                if os.fork() == 0:
                    os.setsid()
        time.sleep(max(end_s - time.monotonic(), 0))
        os._exit(0)
