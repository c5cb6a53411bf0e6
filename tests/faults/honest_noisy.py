"""Says a lot while it works."""

import sys

import torch

EXPECT = {"status": "pass", "reason": [""], "detail": ""}

for line in range(1000):
    print(f"note {line} at import")


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("working on", tuple(x.shape), "\x1b[31min red\x1b[0m")
        print("almost done", file=sys.stderr)
        return x * 2 + 1
