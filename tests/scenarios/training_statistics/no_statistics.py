"""The same by torch's function, without updating the buffers."""

import torch

EXPECT = {"status": "fail", "reason": ["state"], "detail": "norm.running_mean after the calls"}


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(channels)

    def forward(self, x):
        return torch.nn.functional.batch_norm(x, None, None, self.norm.weight, self.norm.bias, training=True)
