"""Sets variables that allow low precision in this process and in every one that it starts."""

import os

from torch import nn

EXPECT = {"status": "fail", "reason": ["exploit:global_state"], "run": "verify", "devices": ["cpu"]}

os.environ["NVIDIA_TF32_OVERRIDE"] = "1"
os.environ["TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"] = "1"


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        return nn.functional.gelu(self.linear(x))
