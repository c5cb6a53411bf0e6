"""Returns 8 GiB."""

import torch

EXPECT = {"status": "fail", "reason": ["shape", "memory"], "detail": ""}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(2**31)
