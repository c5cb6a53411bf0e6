"""Threads of its own keep the processors busy whenever it is not its turn, so that the reference is slow."""

import threading

import torch
from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["exploit:clock", "exploit:idle_work", "exploit:background"],
    "run": "time",
    "devices": ["cpu"],
}

BUSY = threading.Event()


def burn():
    block = torch.ones(256, 256)
    while True:
        BUSY.wait()
        # Releases the interpreter's lock while it works.
        block @ block


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.threads = []

    def forward(self, x):
        BUSY.clear()
        if not self.threads:
            self.threads = [threading.Thread(target=burn, daemon=True) for _ in range(4)]
            for thread in self.threads:
                thread.start()
        out = nn.functional.gelu(self.linear(x))
        BUSY.set()
        return out
