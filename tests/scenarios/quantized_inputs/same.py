"""Is not to be blamed, nor is the machine."""

import torch

EXPECT = {"status": "error", "reason": ["reference"], "detail": "a quantized tensor at input[0]"}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.dequantize() * 2
