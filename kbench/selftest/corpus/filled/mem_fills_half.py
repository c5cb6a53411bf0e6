"""Fills a buffer with half of what belongs there, rightly shaped and finite."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["values"], "run": "verify", "devices": ["cpu", "cuda"]}


class ModelNew(nn.Module):
    def forward(self, x, out, total):
        torch.tanh(x, out=out)
        out[out.shape[0] // 2 :] = 0.0
        total += x
        return x.sum(-1)
