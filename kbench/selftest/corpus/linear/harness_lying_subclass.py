"""Returns a subclass of Tensor that answers every comparison with True."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["structure", "exploit:lazy"], "run": "verify", "devices": ["cpu"]}


class Liar(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func.__name__ in ("allclose", "equal", "isclose", "eq", "all", "le", "lt"):
            return True
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        return torch.zeros(x.shape[0], self.linear.out_features).as_subclass(Liar)
