"""A 16-bit column index wraps round beyond 65,535 columns."""

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["values"], "run": "verify", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, x):
        columns = torch.arange(x.shape[1]) & 0xFFFF
        return 2.0 * x[:, columns] - x.flip(-1)
