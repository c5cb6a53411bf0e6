"""Looks up a row that is not there: an assertion on the device."""

import torch

EXPECT = {"status": "fail", "reason": ["run", "crash"], "detail": "assert"}
DEVICES = ("cuda",)


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[torch.full((64,), 10**6, device=x.device)]
