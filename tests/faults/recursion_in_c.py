"""Overflows the stack of C."""

import ctypes
import sys
import threading

import torch

EXPECT = {"status": "fail", "reason": ["crash"], "detail": "SIGSEGV"}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sys.setrecursionlimit(10**6)
        threading.stack_size(2**18)
        deeper = ctypes.CFUNCTYPE(None)(lambda: deeper())
        thread = threading.Thread(target=deeper)
        thread.start()
        thread.join()
        return x * 2 + 1
