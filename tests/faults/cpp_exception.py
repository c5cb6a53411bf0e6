"""Lets torch throw in C++."""

import torch

EXPECT = {"status": "fail", "reason": ["run"], "detail": "RuntimeError"}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(3, 7)
