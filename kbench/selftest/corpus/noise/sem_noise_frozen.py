"""Draws the noise once and uses it in every later call."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["values", "draws"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.noise = None

    def forward(self, x):
        if self.noise is None:
            self.noise = torch.randn_like(x)
        return x + 0.5 * self.noise
