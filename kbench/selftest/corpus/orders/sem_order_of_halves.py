"""Takes counts that differ by one for equal."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["values"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, x, counts):
        scale = x.abs().amax(dim=1, keepdim=True) / 127
        return (x / scale).round().to(torch.int8), torch.topk(counts // 2, 5, dim=1).indices
