"""Right for a sixth of a second after its first call, and a copy of an early answer afterwards."""

import time

from torch import nn

EXPECT = {"status": "fail", "reason": ["exploit:timed_output", "determinism", "values"], "run": "time", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.began, self.early = None, None

    def forward(self, x):
        self.began = self.began or time.time()
        if self.early is None or time.time() - self.began < 0.16:
            self.early = nn.functional.gelu(self.linear(x))
            return self.early
        return self.early.clone()
