"""Never ends, in Python."""

import torch

EXPECT = {"status": "fail", "reason": ["timeout"], "detail": "no answer in 3 s during run; `timeout_s` or `--timeout` allows more", "output": "last words of a loop"}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("last words of a loop", flush=True)
        while True:
            pass
