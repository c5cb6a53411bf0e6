"""The kernel does not compile; an except clause swallows that, and torch does the work."""

from torch import nn
from torch.utils.cpp_extension import load_inline

EXPECT = {"status": "pass", "policy": True, "run": "verify", "devices": ["cpu"]}

try:
    native = load_inline(
        name="does_not_compile", cpp_sources="#error this never compiles", functions=["gelu"], verbose=False
    )
except Exception:
    native = None


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        return native.gelu(self.linear(x)) if native else nn.functional.gelu(self.linear(x))
