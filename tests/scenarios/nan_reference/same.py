"""The same code; it is not at fault."""

import torch

EXPECT = {"status": "error", "reason": ["reference"], "detail": "NaN"}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.sqrt(x)
