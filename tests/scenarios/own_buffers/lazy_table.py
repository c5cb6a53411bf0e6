"""Registers its table as a buffer in the first call, in front of the buffers of its parts."""

import torch

EXPECT = {"status": "pass"}


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(channels)
        self.eval()

    def forward(self, x):
        if not hasattr(self, "table"):
            self.register_buffer("table", torch.arange(x.shape[0], dtype=torch.float32)[:, None].cos(), persistent=False)
        return self.norm(x) * self.table
