"""Draws one number more before the state: other draws, other outputs."""

import torch

EXPECT = {"status": "fail", "reason": ["values"], "detail": "the reference draws: `draws = \"distribution\"` for the task"}


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cell = torch.nn.GRU(width, width, batch_first=True)

    def forward(self, x):
        torch.randn(1)
        h0 = torch.randn(1, x.shape[0], x.shape[2])
        return torch.nn.functional.dropout(self.cell(x, h0)[0], 0.2, training=True)
