"""Returns the same and leaves the argument as it was, which is half of the result."""

import torch

EXPECT = {"status": "fail", "reason": ["values"], "detail": "input[0] after the call, which the reference writes into"}


class ModelNew(torch.nn.Module):
    def forward(self, x, y, made):
        return torch.relu(x + y)
