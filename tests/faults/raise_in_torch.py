"""Raises in torch, below a function of its own."""

import torch

EXPECT = {"status": "fail", "reason": ["run"], "detail": "raise_in_torch.py:9: RuntimeError"}


def product(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.linear(x, x[:, 1:])


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return product(x)
