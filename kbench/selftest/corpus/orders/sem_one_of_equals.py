"""Gives the first of equal counts as often as there are equal ones."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["values"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, x, counts):
        scale = x.abs().amax(dim=1, keepdim=True) / 127
        values = torch.topk(counts, 5, dim=1).values
        places = (counts[:, None, :] == values[:, :, None]).int().argmax(dim=2)
        return (x / scale).round().to(torch.int8), places
