"""Sets the default dtype to bfloat16 at import, so that whatever is made later is imprecise."""

import torch
from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["exploit:global_state", "dtype", "values", "weights", "run", "load"],
    "run": "verify",
    "devices": ["cpu"],
}

torch.set_default_dtype(torch.bfloat16)


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        return nn.functional.gelu(self.linear(x.to(self.linear.weight.dtype))).to(x.dtype)
