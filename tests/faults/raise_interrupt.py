"""Raises what Ctrl-C raises."""

import torch

EXPECT = {"status": "fail", "reason": ["run"], "detail": "KeyboardInterrupt"}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise KeyboardInterrupt
