"""The task of every candidate here."""

import torch


class Model(torch.nn.Module):
    """Doubles and adds one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 64)]


def get_init_inputs() -> list[object]:
    return []
