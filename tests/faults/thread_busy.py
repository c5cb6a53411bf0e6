"""Leaves a thread behind that never rests."""

import threading

import torch

EXPECT = {"status": "pass", "reason": [""], "detail": ""}


def spin() -> None:
    while True:
        pass


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        threading.Thread(target=spin).start()
        return x * 2 + 1
