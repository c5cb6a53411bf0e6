"""Needs a package that is not installed, which is another matter."""

import torch

EXPECT = {"status": "fail", "reason": ["load"], "detail": "No module named 'no_such_package'"}

import no_such_package  # noqa: F401


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
