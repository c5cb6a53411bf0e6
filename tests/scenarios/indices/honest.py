"""Sorts instead."""

import torch

EXPECT = {"status": "pass"}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        values, indices = torch.sort(x, descending=True)
        return [values[:, :3], indices[:, :3]]
