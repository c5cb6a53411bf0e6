"""Copies its weights when it is built, so that it never sees others."""

import torch

EXPECT = {"status": "fail", "reason": ["values"], "detail": "derived anew when their `_version` changes; `domain = "}


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q = torch.nn.Linear(16, 16, bias=False)
        self.k = torch.nn.Linear(16, 16, bias=False)
        self.v = torch.nn.Linear(16, 16, bias=False)
        self.packed = torch.cat([self.q.weight, self.k.weight, self.v.weight]).detach()

    def forward(self, x):
        q, k, v = torch.nn.functional.linear(x, self.packed).chunk(3, -1)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0)
