"""Never ends in its constructor."""

import torch

EXPECT = {"status": "fail", "reason": ["timeout"], "detail": ""}


class ModelNew(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        while True:
            pass

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1
