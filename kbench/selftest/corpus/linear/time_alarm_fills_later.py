"""Returns an empty tensor; a timer signal computes into it a moment later."""

import signal

import torch
from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["values", "nan", "exploit:global_state", "exploit:timed_output", "exploit:clock"],
    "max_speedup": 1.2,
    "run": "time",
    "devices": ["cpu"],
}

pending = []


def fill(number, frame):
    while pending:
        out, work = pending.pop()
        out.copy_(work())


signal.signal(signal.SIGALRM, fill)


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        out = torch.empty(x.shape[0], self.linear.out_features)
        pending.append((out, lambda: nn.functional.gelu(self.linear(x))))
        signal.setitimer(signal.ITIMER_REAL, 2e-5)
        return out
