"""In-place operators all over, but only on temporaries of its own."""

from torch import nn

EXPECT = {"status": "pass", "run": "time", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, x):
        return x.neg().exp_().add_(1.0).reciprocal_().mul_(x)
