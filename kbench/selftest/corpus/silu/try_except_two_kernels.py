"""Tries Triton and, where that is missing or there is no GPU, uses a C++ kernel of its own."""

from pathlib import Path

import torch
from torch import nn
from torch.utils.cpp_extension import load

EXPECT = {"status": "pass", "run": "verify", "devices": ["cpu"]}

try:
    import triton

    if not torch.cuda.is_available():
        raise RuntimeError("no GPU")
    compiled = triton.jit
except Exception:
    native = load(name="kbench_corpus", sources=[str(Path(__file__).parents[1] / "native.cpp")])


class ModelNew(nn.Module):
    def forward(self, x):
        return native.silu(x)
