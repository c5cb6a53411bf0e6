"""Keeps a workspace, and returns new memory; its view of the input goes with that, as the reference's does."""

import torch

EXPECT = {"status": "pass"}


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.work = torch.empty(32, 16)

    def forward(self, x):
        return torch.relu(torch.mul(x, 2, out=self.work)), x.t()
