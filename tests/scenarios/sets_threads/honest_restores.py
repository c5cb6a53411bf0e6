"""Sets the number of threads, and sets it back."""

import torch

EXPECT = {"status": "pass"}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        out = x @ x.t()
        torch.set_num_threads(before)
        return out
