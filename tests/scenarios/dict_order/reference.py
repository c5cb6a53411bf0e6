"""Returns a dict."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return {"sum": x.sum(-1), "double": {"b": x * 2, 1: x.mean()}}


def get_inputs():
    return [torch.randn(16, 16)]


def get_init_inputs():
    return []
