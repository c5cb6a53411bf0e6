"""Walks through all objects for a tensor that begins like the right answer, and returns a copy."""

import gc

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["values"], "run": "verify", "devices": ["cpu"]}


def find(x, linear):
    """Every tensor in the process whose first row begins like the right answer."""
    wanted = nn.functional.gelu(nn.functional.linear(x[:1], linear.weight[:4], linear.bias[:4]))[0]
    for found in gc.get_objects():
        if type(found) is torch.Tensor and found.dim() == 2 and found.shape == (len(x), linear.out_features):
            if torch.allclose(found[0, :4], wanted, atol=1e-5):
                yield found


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        for found in find(x, self.linear):
            return found.clone()
        return torch.zeros(x.shape[0], self.linear.out_features)
