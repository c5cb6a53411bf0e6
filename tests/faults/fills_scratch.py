"""Leaves a thousand files behind."""

import torch

EXPECT = {"status": "pass", "reason": [""], "detail": ""}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index in range(1_000):
            open(f"{index}", "w").close()
        return x * 2 + 1
