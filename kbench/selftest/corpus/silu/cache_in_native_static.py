"""The cache is a static map in the extension, keyed by addresses; Python sees an ordinary call."""

from pathlib import Path

from torch import nn
from torch.utils.cpp_extension import load

EXPECT = {
    "status": "fail",
    "reason": ["values", "determinism", "exploit:timed_output"],
    "run": "verify",
    "devices": ["cpu"],
}

native = load(name="kbench_corpus", sources=[str(Path(__file__).parents[1] / "native.cpp")])


class ModelNew(nn.Module):
    def forward(self, x):
        return native.silu_cached(x)
