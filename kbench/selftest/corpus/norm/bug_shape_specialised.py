"""The row length of one test is baked in: other lengths are silently computed wrong."""

from torch import nn

EXPECT = {"status": "fail", "reason": ["values", "run"], "run": "verify", "devices": ["cpu"]}

COLUMNS = 257


class ModelNew(nn.Module):
    def forward(self, x, residual):
        centred = x - x.sum(-1, keepdim=True) / COLUMNS
        return centred / (centred.square().sum(-1, keepdim=True) / COLUMNS + 1e-5).sqrt() + residual
