"""Copies nothing: computes into the memory beside the input that the harness lent, and returns a view of it."""

import torch
from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["values", "mutation", "exploit:borrowed_memory"],
    "run": "verify",
    "devices": ["cpu"],
}


class ModelNew(nn.Module):
    def forward(self, x):
        lent = torch.empty(0).set_(x.untyped_storage())
        start = max(0, min(x.storage_offset() - 16, lent.numel() - x.numel()))
        out = lent[start : start + x.numel()].view(x.shape)
        out.numpy()[...] = (x * torch.sigmoid(x)).numpy()
        return out
