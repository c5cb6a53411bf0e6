"""Is not to be blamed."""

import torch

EXPECT = {"status": "error", "reason": ["reference"], "detail": "1 NaN in output[0]"}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return float("nan"), x * 2
