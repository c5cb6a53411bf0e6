"""Changes a buffer that the reference has, beside one of its own."""

import torch

EXPECT = {"status": "fail", "reason": ["state"], "detail": "the call changed norm.running_mean"}


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(channels)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.eval()

    def forward(self, x):
        self.calls += 1
        out = self.norm(x) * torch.arange(x.shape[0], dtype=torch.float32)[:, None].cos()
        self.norm.running_mean.add_(1e-9)
        return out
