"""Is not to be blamed."""

import torch

EXPECT = {"status": "error", "reason": ["reference"], "detail": "`Batch` at input[0], which only the reference has"}


class ModelNew(torch.nn.Module):
    def forward(self, batch):
        return batch.x * batch.scale
