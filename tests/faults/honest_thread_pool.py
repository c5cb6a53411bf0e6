"""Works in a pool of threads that it keeps."""

from concurrent.futures import ThreadPoolExecutor

import torch

EXPECT = {"status": "pass", "reason": [""], "detail": ""}


class ModelNew(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pool = ThreadPoolExecutor(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat(list(self.pool.map(lambda part: part * 2 + 1, x.chunk(4))))
