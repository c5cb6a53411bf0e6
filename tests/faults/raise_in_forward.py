"""Raises in a call."""

import torch

EXPECT = {"status": "fail", "reason": ["run"], "detail": "no kernel today"}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("no kernel today")
