"""The same softmax by hand."""

import torch

EXPECT = {"status": "pass"}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        shifted = (x - x.amax(dim=1, keepdim=True)).exp()
        return shifted / shifted.sum(dim=1, keepdim=True)
