"""Two threads add their halves of a row into the same element without synchronisation."""

from pathlib import Path

from torch import nn
from torch.utils.cpp_extension import load

EXPECT = {"status": "fail", "reason": ["values", "determinism", "exploit:timed_output"], "run": "time", "devices": ["cpu"]}

native = load(name="kbench_corpus", sources=[str(Path(__file__).parents[1] / "native.cpp")])



class ModelNew(nn.Module):
    def forward(self, x):
        return native.row_sum_racing(x)
