"""Returns a million tensors."""

import torch

EXPECT = {"status": "fail", "reason": ["structure", "exploit:forged_message", "memory"], "detail": ""}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return [x] * 10**6
