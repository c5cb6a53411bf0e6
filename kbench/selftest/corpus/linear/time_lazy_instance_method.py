"""Returns a plain tensor whose instance attributes shadow its methods and do the work on first use."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["structure", "exploit:lazy"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        out = torch.empty(x.shape[0], self.linear.out_features)
        done = []

        def on_first_use(name):
            method = getattr(torch.Tensor, name)

            def call(*args, **kwargs):
                if not done:
                    done.append(True)
                    out.copy_(nn.functional.gelu(self.linear(x)))
                return method(out, *args, **kwargs)

            return call

        for name in ("detach", "clone", "cpu", "to", "float", "double", "numpy", "contiguous"):
            setattr(out, name, on_first_use(name))
        return out
