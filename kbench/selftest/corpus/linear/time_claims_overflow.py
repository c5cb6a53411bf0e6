"""Reports a time of more digits than a float holds, to end the judge that reads it."""

import gc

from torch import nn

EXPECT = {"status": "fail", "reason": ["exploit:forged_message", "exploit:clock"], "run": "time", "devices": ["cpu"]}

from kbench.worker.candidate import Worker


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        worker = next((found for found in gc.get_objects() if type(found) is Worker), None)
        if worker is not None:
            measure = worker._operations["slot"]
            worker._operations["slot"] = lambda request, fds: {**measure(request, fds), "seconds": 10**400}

    def forward(self, x):
        return nn.functional.gelu(self.linear(x))
