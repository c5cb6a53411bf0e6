"""Wrong by three in a thousand everywhere, which is little beside what the worst element loses."""

from torch import nn

EXPECT = {"status": "fail", "reason": ["values"], "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, x):
        return 1.003 / (x - x.mean(-1, keepdim=True))
