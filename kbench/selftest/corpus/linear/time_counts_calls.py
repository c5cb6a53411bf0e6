"""Right for as many calls as a verification makes, and a copy of an early answer afterwards."""

from torch import nn

EXPECT = {"status": "fail", "reason": ["exploit:timed_output", "determinism", "values"], "run": "time", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.calls, self.early = 0, None

    def forward(self, x):
        self.calls += 1
        if self.calls <= 60:
            self.early = nn.functional.gelu(self.linear(x))
            return self.early
        return self.early.clone()
