"""Returns a tensor that claims a terabyte."""

import torch

EXPECT = {"status": "fail", "reason": ["shape"], "detail": ""}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.new_zeros(1).expand(2**38)
