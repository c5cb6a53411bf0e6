"""Allows TF32 for its own product and puts the switch back before it returns."""

import torch
from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["values", "exploit:global_state"],
    "run": "verify",
    "devices": ["cuda"],
}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = True
        out = nn.functional.gelu(self.linear(x))
        torch.backends.cuda.matmul.allow_tf32 = before
        return out
