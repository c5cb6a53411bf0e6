"""Rounds one value in five hundred, far from any boundary, to its neighbour."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["values"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, x, counts):
        scale = x.abs().amax(dim=1, keepdim=True) / 127
        rounded = (x / scale).round()
        rounded[:, ::500] -= rounded[:, ::500].sign()
        return rounded.to(torch.int8), torch.topk(counts, 5, dim=1).indices
