"""Fails with a reason that is no text, to end the judge that reads it."""

import gc

from torch import nn

EXPECT = {"status": "fail", "reason": ["exploit:forged_message"], "run": "verify", "devices": ["cpu"]}

from kbench.worker.candidate import Worker


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        worker = next((found for found in gc.get_objects() if type(found) is Worker), None)
        if worker is not None:
            worker._operations["forward"] = lambda request, fds: {"ok": False, "reason": [], "stage": [1]}

    def forward(self, x):
        return x
