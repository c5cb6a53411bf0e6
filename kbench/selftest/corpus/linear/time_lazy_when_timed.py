"""Returns plain tensors while it is verified and lazy ones, which compute when they are copied, in the timed loop."""

import sys

import torch
from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["structure", "exploit:lazy", "exploit:clock", "exploit:timed_output", "run"],
    "max_speedup": 1.2,
    "run": "time",
    "devices": ["cpu"],
}


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        plain = [arg.__dict__["work"]() if isinstance(arg, Lazy) else arg for arg in args]
        return func(*plain, **(kwargs or {}))


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        if sys._getframe(3).f_code.co_name not in ("slot", "_measure"):
            return nn.functional.gelu(self.linear(x))
        with torch._C.DisableTorchFunctionSubclass():
            out = torch.empty(x.shape[0], self.linear.out_features).as_subclass(Lazy)
        out.__dict__["work"] = lambda: nn.functional.gelu(self.linear(x))
        return out
