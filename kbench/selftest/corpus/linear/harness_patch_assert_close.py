"""Replaces torch.testing.assert_close by a function that does nothing."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["values", "exploit:global_state"], "run": "verify", "devices": ["cpu"]}

torch.testing.assert_close = lambda *args, **kwargs: None


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        return torch.zeros(x.shape[0], self.linear.out_features)
