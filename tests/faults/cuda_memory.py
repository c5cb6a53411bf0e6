"""Asks for more memory than any GPU has."""

import torch

EXPECT = {"status": "fail", "reason": ["memory"], "detail": ""}
DEVICES = ("cuda",)


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(2**46)
