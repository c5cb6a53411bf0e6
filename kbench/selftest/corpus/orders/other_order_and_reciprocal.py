"""Multiplies by the reciprocal of the scale, and takes equal counts in the order of their places."""

import torch
from torch import nn

EXPECT = {"status": "pass", "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, x, counts):
        factor = 127 / x.abs().amax(dim=1, keepdim=True)
        places = torch.sort(counts, dim=1, descending=True, stable=True).indices
        return (x * factor).round().to(torch.int8), places[:, :5].contiguous()
