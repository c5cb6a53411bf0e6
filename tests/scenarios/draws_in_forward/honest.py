"""Draws in the same order; batch first by hand."""

import torch

EXPECT = {"status": "pass"}


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cell = torch.nn.GRU(width, width)

    def forward(self, x):
        h0 = torch.randn(1, x.shape[0], x.shape[2])
        out = self.cell(x.transpose(0, 1), h0)[0].transpose(0, 1)
        return torch.nn.functional.dropout(out, 0.2, training=True)
