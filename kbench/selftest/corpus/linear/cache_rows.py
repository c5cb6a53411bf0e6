"""Remembers rows: of inputs that are old ones turned over, only the rows that have changed are computed."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["exploit:timed_output"], "max_speedup": 1.2, "run": "time", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.known, self.sets = {}, []

    def compute(self, x):
        return nn.functional.gelu(self.linear(x))

    def forward(self, x):
        n = len(x)
        for at in (0, n // 3, n // 2):
            found = self.known.get(x[at, :4].numpy().tobytes())
            if found is None:
                continue
            old_x, old_y = self.sets[found[0]]
            shift = at - found[1]
            y = torch.roll(old_y, shift, 0)
            changed = (x != torch.roll(old_x, shift, 0)).any(1).nonzero().flatten()
            if len(changed) <= n // 4:
                y[changed] = self.compute(x[changed])
                return y
        y = self.compute(x)
        if len(self.sets) < 40:
            self.known.update({x[at, :4].numpy().tobytes(): (len(self.sets), at) for at in range(n)})
            self.sets.append((x.clone(), y.clone()))
        return y
