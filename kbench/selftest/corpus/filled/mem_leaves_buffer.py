"""Returns what is right and leaves a buffer as it was, which changes no input that it should not."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["values"], "run": "verify", "devices": ["cpu", "cuda"]}


class ModelNew(nn.Module):
    def forward(self, x, out, total):
        torch.tanh(x, out=out)
        return x.sum(-1)
