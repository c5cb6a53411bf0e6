"""Reads the memory of its inputs as if they were contiguous."""

from torch import nn

EXPECT = {"status": "fail", "reason": ["values", "nan", "run"], "run": "verify", "devices": ["cpu"]}


def at_pointer(x):
    """What a kernel sees that takes data_ptr and computes its own offsets."""
    return x.as_strided(x.shape, (x.shape[1], 1), x.storage_offset())


class ModelNew(nn.Module):
    def forward(self, x, residual):
        x, residual = at_pointer(x), at_pointer(residual)
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() + residual
