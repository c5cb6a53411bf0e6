"""Switches inference on for good inside of forward, so that the harness works without autograd from then on."""

import torch
from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["exploit:global_state", "values", "run"],
    "run": "verify",
    "devices": ["cpu"],
}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        torch._C._set_grad_enabled(False)
        torch.set_num_threads(1)
        torch.set_flush_denormal(True)
        return nn.functional.gelu(self.linear(x))
