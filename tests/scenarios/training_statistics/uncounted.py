"""The statistics are kept, but nobody counts the calls."""

import torch

EXPECT = {"status": "pass", "warning": "num_batches_tracked"}


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(channels)

    def forward(self, x):
        variance, mean = torch.var_mean(x, 0, correction=0)
        n = x.shape[0]
        self.norm.running_mean.mul_(0.9).add_(0.1 * mean)
        self.norm.running_var.mul_(0.9).add_(0.1 * variance * n / (n - 1))
        return (x - mean) * torch.rsqrt(variance + self.norm.eps) * self.norm.weight + self.norm.bias
