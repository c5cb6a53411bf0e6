"""Cannot be imported."""

import torch

EXPECT = {"status": "fail", "reason": ["load"], "detail": "no_such_module"}

import no_such_module


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x + 1
