"""Keeps something in a temporary file."""

import tempfile

import torch

EXPECT = {"status": "pass", "reason": [""], "detail": ""}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with tempfile.NamedTemporaryFile("w+") as file:
            file.write("2")
            file.seek(0)
            return x * int(file.read()) + 1
