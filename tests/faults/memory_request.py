"""Asks for a petabyte at once."""

import torch

EXPECT = {"status": "fail", "reason": ["memory"], "detail": ""}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(2**48)
