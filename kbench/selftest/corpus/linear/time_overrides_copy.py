"""Overrides the operator aten::copy_, so that the work is done when the harness copies the output, after the clock."""

import torch
from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["exploit:global_state", "exploit:clock", "values", "crash", "run"],
    "max_speedup": 1.2,
    "run": "time",
    "devices": ["cpu"],
}

pending = {}
library = torch.library.Library("aten", "IMPL")


def copy_(target, source, non_blocking=False):
    if isinstance(source, torch.Tensor) and (work := pending.pop(source.data_ptr(), None)):
        source = work()
    target.numpy()[...] = source.detach().numpy() if isinstance(source, torch.Tensor) else source
    return target


library.impl("copy_", copy_, "CPU")


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        out = torch.empty(x.shape[0], self.linear.out_features)
        pending[out.data_ptr()] = lambda: nn.functional.gelu(self.linear(x))
        return out
