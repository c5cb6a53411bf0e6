"""Takes away the ways to end a process."""

import os

import torch

EXPECT = {"status": "fail", "reason": ["exploit:global_state", "run"], "detail": ""}

os._exit = os.abort = lambda *args: None


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise SystemExit
