"""Raises with a message of 100 MB, full of control codes."""

import torch

EXPECT = {"status": "fail", "reason": ["run"], "detail": "ValueError"}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("\x1b[2J\r\n=cmd()," * 10_000_000)
