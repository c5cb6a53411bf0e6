"""Never ends, in Python."""

import torch

EXPECT = {"status": "fail", "reason": ["timeout"], "detail": ""}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while True:
            pass
