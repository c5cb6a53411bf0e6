"""Raises while it is imported."""

import torch

EXPECT = {"status": "fail", "reason": ["load"], "detail": "raise_at_import.py:7: RuntimeError: no kernel today"}

raise RuntimeError("no kernel today")


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1
