"""Leaves the same in it."""

import torch

EXPECT = {"status": "pass", "warning": "puts other values into a list or dict among its inputs"}


class ModelNew(torch.nn.Module):
    def forward(self, x, y, made):
        return x.copy_(torch.relu(x + y))
