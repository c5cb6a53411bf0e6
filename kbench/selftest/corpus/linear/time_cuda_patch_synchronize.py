"""Makes synchronising do nothing, so that a wall clock sees the launch only."""

import torch
from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["exploit:global_state", "exploit:clock"],
    "run": "verify",
    "devices": ["cuda"],
}

torch.cuda.synchronize = lambda device=None: None
torch.cuda.Stream.synchronize = torch.cuda.Event.synchronize = lambda self: None


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        return nn.functional.gelu(self.linear(x))
