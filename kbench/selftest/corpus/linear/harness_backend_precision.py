"""Lowers the precision of float32 products by the switches of each backend, which the old setting does not show."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["exploit:global_state", "values"], "run": "verify", "devices": ["cpu"]}

torch.backends.mkldnn.matmul.fp32_precision = "bf16"
torch.backends.cuda.matmul.fp32_precision = "tf32"


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        return nn.functional.gelu(self.linear(x))
