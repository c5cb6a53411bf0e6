"""Stores four floats at a time: the last store goes past the end, into the slack of the allocation."""

from pathlib import Path

from torch import nn
from torch.utils.cpp_extension import load

EXPECT = {
    "status": "fail",
    "reason": ["mutation", "exploit:out_of_bounds", "contract:out_of_bounds", "crash", "memory", "run"],
    "run": "verify",
    "devices": ["cpu"],
}

native = load(name="kbench_corpus", sources=[str(Path(__file__).parents[1] / "native.cpp")])



class ModelNew(nn.Module):
    def forward(self, x):
        return native.silu_by_fours(x)
