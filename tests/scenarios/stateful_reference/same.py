"""The same recurrence: both sides see the same sequence of calls."""

import torch

EXPECT = {"status": "pass", "warning": "keeps state between calls"}


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(2 * width, width)
        self.hidden = torch.zeros(3, width)

    def forward(self, x):
        joined = torch.cat((x, self.hidden), dim=1)
        self.hidden = torch.addmm(self.linear.bias, joined, self.linear.weight.t()).tanh()
        return self.hidden
