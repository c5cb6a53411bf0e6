"""Looks at the first 4096 entries of the mask; if these are all ones it treats the whole mask as ones."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["values"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, x, mask):
        if bool(mask.view(-1)[:4096].all()):
            return x.sin()
        return torch.where(mask, x.sin(), x.cos())
