"""Moves a file between folders of its own, as Triton does with what it compiled."""

import os
import tempfile

import torch

EXPECT = {"status": "pass"}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(f"{folder}/inner")
            open(f"{folder}/inner/file", "w").close()
            os.replace(f"{folder}/inner/file", f"{folder}/file")
        return torch.relu(x)
