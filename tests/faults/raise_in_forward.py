"""Raises in a call."""

import torch

EXPECT = {"status": "fail", "reason": ["run"], "detail": "raise_in_forward.py:11: ValueError: no kernel today", "output": "last words of an error"}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("last words of an error", flush=True)
        raise ValueError("no kernel today")
