"""Gives the argument another shape."""

import torch

EXPECT = {"status": "fail", "reason": ["shape"], "detail": "no longer of shape [8, 10]"}


class ModelNew(torch.nn.Module):
    def forward(self, x, y, made):
        result = torch.relu(x + y)
        x.data = result.reshape(80)
        return result
