"""Returns a list in a list in a list, and so on."""

import torch

EXPECT = {"status": "fail", "reason": ["structure", "run", "exploit:forged_message"], "detail": ""}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        nested = x
        for _ in range(10**5):
            nested = [nested]
        return nested
