"""Returns a list that contains itself."""

import torch

EXPECT = {"status": "fail", "reason": ["structure", "run", "exploit:forged_message"], "detail": ""}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own = [x]
        own.append(own)
        return own
