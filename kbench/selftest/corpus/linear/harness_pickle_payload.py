"""Returns a subclass of Tensor whose pickle form replaces torch.allclose in whoever unpickles it."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["structure", "exploit:lazy"], "run": "verify", "devices": ["cpu"]}


class Payload(torch.Tensor):
    def __reduce_ex__(self, protocol):
        code = "import torch; torch.allclose = torch.equal = lambda *args, **kwargs: True"
        return exec, (code,)


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        return torch.zeros(x.shape[0], self.linear.out_features).as_subclass(Payload)
