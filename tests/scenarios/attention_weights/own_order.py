"""Draws its projections in an order of its own, under other names: they get each other's weights."""

import torch

EXPECT = {"status": "fail", "reason": ["values"], "detail": "; weights were matched by order, not by name: q.weight → values.weight, k.weight → keys.weight, "}


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.rand(1)
        self.values = torch.nn.Linear(16, 16, bias=False)
        self.keys = torch.nn.Linear(16, 16, bias=False)
        self.queries = torch.nn.Linear(16, 16, bias=False)

    def forward(self, x):
        return torch.nn.functional.scaled_dot_product_attention(self.queries(x), self.keys(x), self.values(x), scale=1.0)
