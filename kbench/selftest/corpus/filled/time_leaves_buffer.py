"""Fills the caller's buffers while it is verified, and leaves them alone in the timed loop."""

import sys

import torch
from torch import nn

EXPECT = {"status": "fail", "reason": ["exploit:timed_output"], "run": "time", "devices": ["cpu", "cuda"]}


class ModelNew(nn.Module):
    def forward(self, x, out, total):
        frame, names = sys._getframe(1), set()
        while frame is not None:
            names.add(frame.f_code.co_name)
            frame = frame.f_back
        if names.isdisjoint({"slot", "wall", "burst"}):
            torch.tanh(x, out=out)
            total += x
        return x.sum(-1)
