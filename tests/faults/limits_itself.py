"""Takes all limits down to nothing."""

import resource

import torch

EXPECT = {"status": "fail", "reason": ["run", "memory", "crash", "timeout"], "detail": ""}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for limit in (
            resource.RLIMIT_AS,
            resource.RLIMIT_DATA,
            resource.RLIMIT_NOFILE,
            resource.RLIMIT_STACK,
        ):
            resource.setrlimit(limit, (0, 0))
        return x.new_empty(2**28) * 2
