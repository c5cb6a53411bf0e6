"""The same mathematics by hand."""

import torch

EXPECT = {"status": "pass"}


class ModelNew(torch.nn.Module):
    def forward(self, logits, labels):
        assert labels.dtype == torch.int64
        picked = logits.gather(1, labels[:, None]).squeeze(1)
        return (torch.logsumexp(logits, dim=1) - picked).mean()
