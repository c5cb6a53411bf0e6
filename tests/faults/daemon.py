"""Leaves a daemon behind, which would go on for an hour."""

import os
import signal
import time

import torch

EXPECT = {"status": "pass", "reason": [""], "detail": ""}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ready, announce = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                os.write(announce, b"x")
                time.sleep(3600)
            os._exit(0)
        os.read(ready, 1)
        return x * 2 + 1
