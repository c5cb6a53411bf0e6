"""Sets the number of threads when it is imported."""

import torch

EXPECT = {"status": "fail", "reason": ["exploit:global_state"], "detail": "changed threads"}

torch.set_num_threads(1)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x @ x.t()
