"""Works in blocks of eight columns and forgets the rest."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["values", "nan"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, x, residual):
        centred = x - x.mean(-1, keepdim=True)
        scale = (centred.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        out = torch.empty(x.shape)
        whole = x.shape[1] // 8 * 8
        out[:, :whole] = centred[:, :whole] * scale + residual[:, :whole]
        return out
