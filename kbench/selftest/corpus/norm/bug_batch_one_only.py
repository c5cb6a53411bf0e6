"""Takes the mean over the whole tensor: right for a single row."""

from torch import nn

EXPECT = {"status": "fail", "reason": ["values"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, x, residual):
        centred = x - x.mean()
        return centred / (centred.square().mean() + 1e-5).sqrt() + residual
