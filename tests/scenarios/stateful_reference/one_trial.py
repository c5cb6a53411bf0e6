"""The same recurrence, judged in a single trial."""

import torch

EXPECT = {"status": "pass", "warning": "keeps state between calls", "settings": {"trials": 1}}


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(2 * width, width)
        self.hidden = torch.zeros(3, width)

    def forward(self, x):
        self.hidden = torch.tanh(self.linear(torch.cat((x, self.hidden), dim=1)))
        return self.hidden
