"""Has its workspace and a counter of its calls as buffers."""

import torch

EXPECT = {"status": "pass"}


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(channels)
        self.register_buffer("work", torch.empty(33, channels), persistent=False)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.eval()

    def forward(self, x):
        self.calls += 1
        self.work.copy_(self.norm(x))
        return self.work * torch.arange(x.shape[0], dtype=torch.float32)[:, None].cos()
