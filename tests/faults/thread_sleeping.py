"""Leaves a thread behind that the interpreter would wait for."""

import threading
import time

import torch

EXPECT = {"status": "pass", "reason": [""], "detail": ""}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        threading.Thread(target=time.sleep, args=(3600,)).start()
        return x * 2 + 1
