"""Multiplies in bfloat16, within the task's tolerance, where the task asks for float32 arithmetic."""

import torch

EXPECT = {
    "status": "fail",
    "reason": ["values"],
    "detail": "its errors are those of bfloat16, not of float32",
    "settings": {"arithmetic": "float32", "atol": 0.5, "rtol": 0.05, "domain": "as_given"},
}


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        return x.bfloat16().float() @ y.bfloat16().float()
