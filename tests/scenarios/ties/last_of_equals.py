"""Takes the last of equal elements where torch takes the first."""

import torch

EXPECT = {"status": "pass"}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.shape[1] - 1 - x.flip(1).argmax(dim=1)
