"""Keeps a scale that it made of the first weights as a buffer beside them."""

import torch

EXPECT = {"status": "fail", "reason": ["values"], "detail": "variant `weights`"}


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(channels)
        self.register_buffer("scale", self.norm.weight.detach() * torch.rsqrt(self.norm.running_var + self.norm.eps))
        self.eval()

    def forward(self, x):
        return ((x - self.norm.running_mean) * self.scale + self.norm.bias) * torch.arange(x.shape[0], dtype=torch.float32)[:, None].cos()
