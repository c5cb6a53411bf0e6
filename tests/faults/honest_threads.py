"""Starts threads and waits for them."""

import threading

import torch

EXPECT = {"status": "pass", "reason": [""], "detail": ""}


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        halves = ((x[:32], out[:32]), (x[32:], out[32:]))
        threads = [threading.Thread(target=lambda a, b: b.copy_(a * 2 + 1), args=half) for half in halves]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return out
