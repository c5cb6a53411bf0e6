"""Goes on to the next multiple of 16 elements, where NaN would lose every comparison."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["values", "determinism"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, x):
        n = -(-x.numel() // 16) * 16
        rest = x.as_strided((n,), (1,), x.storage_offset())
        rest = rest[rest == rest]
        return rest.amax(), rest.amin()
