"""In two halves, each with its maximum, as an online softmax goes."""

import torch
from torch import nn

EXPECT = {"status": "pass", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, x):
        halves = x.split(128, -1)
        tops = [half.amax(-1, keepdim=True) for half in halves]
        top = torch.stack(tops).amax(0)
        sums = [torch.exp(half - own).sum(-1, keepdim=True) * torch.exp(own - top) for half, own in zip(halves, tops)]
        return torch.exp(x - top) / torch.stack(sums).sum(0)
