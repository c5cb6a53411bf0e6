"""The same: who asks for the buffer gets the buffer."""

import torch

EXPECT = {"status": "pass"}


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels))

    def forward(self, x):
        self.mean.lerp_(x.mean(0), 0.1)
        return x - self.mean, self.mean
