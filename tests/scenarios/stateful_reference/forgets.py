"""Starts from nothing at every call."""

import torch

EXPECT = {"status": "fail", "reason": ["values"]}


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(2 * width, width)

    def forward(self, x):
        return torch.tanh(self.linear(torch.cat((x, torch.zeros_like(x)), dim=1)))
