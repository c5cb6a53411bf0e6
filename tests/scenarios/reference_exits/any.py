"""Is not to be blamed, nor is the machine."""

import torch

EXPECT = {"status": "error", "reason": ["reference"], "detail": "Model.forward raised SystemExit: 3"}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x
