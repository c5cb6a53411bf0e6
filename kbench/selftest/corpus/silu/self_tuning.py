"""Times two variants with time.perf_counter in the first call and keeps the faster."""

import time

import torch
from torch import nn

EXPECT = {"status": "pass", "run": "time", "devices": ["cpu"]}

VARIANTS = (nn.functional.silu, lambda x: x * torch.sigmoid(x))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.best = None

    def forward(self, x):
        if self.best is None:
            seconds = []
            for variant in VARIANTS:
                start = time.perf_counter()
                variant(x)
                seconds.append(time.perf_counter() - start)
            self.best = VARIANTS[seconds.index(min(seconds))]
        return self.best(x)
