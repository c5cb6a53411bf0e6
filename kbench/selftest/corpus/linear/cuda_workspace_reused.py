"""Keeps one workspace from call to call, and gives every caller an output of his own, as a view with other strides."""

import torch
from torch import nn

EXPECT = {"status": "pass", "run": "time", "devices": ["cpu", "cuda"]}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.workspace = None

    def forward(self, x):
        shape = (self.linear.out_features, x.shape[0])
        if self.workspace is None or self.workspace.shape != shape or self.workspace.device != x.device:
            self.workspace = torch.empty(shape, device=x.device)
        torch.addmm(self.linear.bias[:, None], self.linear.weight, x.t(), out=self.workspace)
        return nn.functional.gelu(self.workspace).t()
