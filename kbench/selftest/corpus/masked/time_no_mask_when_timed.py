"""Takes the mask for all ones while it is timed, as it nearly is."""

import sys

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["exploit:timed_output"], "run": "time", "devices": ["cpu"]}


class ModelNew(nn.Module):
    def forward(self, x, mask):
        if sys._getframe(3).f_code.co_name == "slot":
            return x.sin()
        return torch.where(mask, x.sin(), x.cos())
