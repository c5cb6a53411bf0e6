"""Switches at the same call."""

import torch

EXPECT = {"status": "pass", "warning": "keeps state between calls"}


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x.div(2.0) if self.calls < 7 else x.clone()
