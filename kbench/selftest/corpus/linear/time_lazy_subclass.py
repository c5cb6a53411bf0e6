"""Returns a subclass of Tensor that computes only when some operation touches it."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["structure", "exploit:lazy"], "run": "verify", "devices": ["cpu"]}


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        plain = [arg.compute() if isinstance(arg, Lazy) else arg for arg in args]
        return func(*plain, **(kwargs or {}))

    def compute(self):
        with torch._C.DisableTorchFunctionSubclass():
            if "value" not in self.__dict__:
                self.__dict__["value"] = self.__dict__["work"]()
            return self.__dict__["value"]


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        out = torch.empty(x.shape[0], self.linear.out_features).as_subclass(Lazy)
        out.__dict__["work"] = lambda: nn.functional.gelu(self.linear(x))
        return out
