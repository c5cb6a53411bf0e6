"""Returns an empty tensor at once; a thread fills it after the call has returned."""

import threading
import time

import torch
from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["values", "nan", "exploit:timed_output", "exploit:clock"],
    "run": "time",
    "devices": ["cpu"],
}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        out = torch.empty(x.shape[0], self.linear.out_features)

        def work():
            time.sleep(1e-4)
            with torch.no_grad():
                out.copy_(nn.functional.gelu(self.linear(x)))

        threading.Thread(target=work).start()
        return out
