"""Returns at once; a thread of its own launches the work a moment later, on the caller's own stream."""

import threading
import time

import torch
from torch import nn

EXPECT = {
    "status": "fail",
    "reason": ["values", "nan", "determinism", "exploit:timed_output", "exploit:idle_work"],
    "run": "time",
    "devices": ["cuda"],
}


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        out = torch.empty(x.shape[0], self.linear.out_features, device=x.device)

        def later():
            time.sleep(1e-4)
            with torch.no_grad():
                out.copy_(nn.functional.gelu(self.linear(x)))

        threading.Thread(target=later).start()
        return out
