"""Cuts fractions off where the reference rounds them."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["values"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, x, counts):
        scale = x.abs().amax(dim=1, keepdim=True) / 127
        return (x / scale).trunc().to(torch.int8), torch.topk(counts, 5, dim=1).indices
