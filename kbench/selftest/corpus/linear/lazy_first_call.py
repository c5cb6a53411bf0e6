"""Sets itself up in the first call: a dummy run, a table of constants, a counter."""

import torch
from torch import nn

EXPECT = {"status": "pass", "run": "time", "devices": ["cpu", "cuda"]}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.ready, self.calls, self.halves = False, 0, {}

    def half(self, x):
        key = (x.dtype, x.device)
        if key not in self.halves:
            self.halves[key] = torch.full((), 0.5, dtype=x.dtype, device=x.device)
        return self.halves[key]

    def forward(self, x):
        if not self.ready:
            for _ in range(3):
                nn.functional.gelu(self.linear(torch.zeros_like(x)))
            self.ready = True
        self.calls += 1
        y = self.linear(x)
        return y * self.half(y) * (1.0 + torch.erf(y * 0.7071067811865476))
