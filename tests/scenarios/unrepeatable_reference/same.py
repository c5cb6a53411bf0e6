"""The same code; it is not at fault."""

import os

import torch

EXPECT = {"status": "error", "reason": ["reference"], "detail": "not repeatable"}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x + int.from_bytes(os.urandom(2), "big")
