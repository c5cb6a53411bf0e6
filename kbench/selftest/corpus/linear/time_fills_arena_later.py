"""Finds the judge's memory for outputs in its process, and has a thread write the answer there after it was told to be done."""

import gc
import sys
import threading
import time

import torch
from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["exploit:timed_output", "exploit:clock", "exploit:idle_work", "exploit:global_state", "values", "nan"],
    "run": "time",
    "devices": ["cpu"],
}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        caller = sys._getframe(3)
        if caller.f_code.co_name != "slot":
            return nn.functional.gelu(self.linear(x))
        places = [group[0] for group in caller.f_locals["self"]._outputs]
        place = places[len(caller.f_locals["results"]) % len(places)]

        def later():
            time.sleep(1e-4)
            with torch.no_grad():
                place.copy_(nn.functional.gelu(self.linear(x)))

        threading.Thread(target=later).start()
        return torch.empty(x.shape[0], self.linear.out_features)
