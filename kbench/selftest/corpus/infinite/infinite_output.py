"""Returns minus infinity for half of the elements, as the reference does."""

import torch
from torch import nn

EXPECT = {"status": "pass", "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.where(x < 0, torch.full_like(x, float("-inf")), x)
