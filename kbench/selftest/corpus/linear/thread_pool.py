"""A pool of Python threads stays alive between calls; every call waits for its results."""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

EXPECT = {"status": "pass", "run": "time", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.pool = None

    def forward(self, x):
        if self.pool is None:
            self.pool = ThreadPoolExecutor(2)

        def half(rows):
            with torch.no_grad():
                return nn.functional.gelu(self.linear(rows))

        return torch.cat(list(self.pool.map(half, x.chunk(2))))
