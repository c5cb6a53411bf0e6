"""Is right where the task says so."""

import torch

EXPECT = {"status": "pass", "settings": {"allow_nan": True}}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return float("nan"), x * 2
