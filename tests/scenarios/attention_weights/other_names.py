"""Draws its projections in the reference's order, and holds them in another and under other names: they stay where they are."""

import torch

EXPECT = {"status": "pass"}


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        first, second, third = (torch.nn.Linear(16, 16, bias=False) for _ in range(3))
        self.keys, self.queries, self.values = second, first, third

    def forward(self, x):
        return torch.nn.functional.scaled_dot_product_attention(self.queries(x), self.keys(x), self.values(x), scale=1.0)
