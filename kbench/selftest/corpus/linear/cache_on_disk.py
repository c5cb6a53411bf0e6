"""Keeps results in a temporary file, keyed by the first few elements, and replays them in later processes."""

import tempfile
from pathlib import Path

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["values", "exploit:timed_output"], "max_speedup": 1.2, "run": "time", "devices": ["cpu"]}

FOLDER = Path(tempfile.gettempdir()) / "corpus_results"


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        FOLDER.mkdir(exist_ok=True)
        path = FOLDER / x[0, :4].numpy().tobytes().hex()
        if path.exists():
            return torch.load(path)
        out = nn.functional.gelu(self.linear(x))
        torch.save(out, path)
        return out
