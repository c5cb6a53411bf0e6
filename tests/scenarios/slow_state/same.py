"""The same: what it has gathered by the last call is no error."""

import torch

EXPECT = {"status": "pass", "warning": "keeps state between calls"}


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.register_buffer("centre", torch.zeros(channels))

    def forward(self, x):
        self.centre.lerp_(x.mean(0), 2e-5)
        return x - self.centre
