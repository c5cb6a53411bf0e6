"""Returns no output at all: a loop over pairs of outputs compares nothing."""

from torch import nn

EXPECT = {"status": "fail", "reason": ["structure"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, x):
        return ()
