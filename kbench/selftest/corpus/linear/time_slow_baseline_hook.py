"""A global forward hook sleeps whenever a module of the reference's class is called."""

import time

from torch import nn

EXPECT = {"status": "fail", "reason": ["exploit:global_state"], "run": "verify", "devices": ["cpu"]}


def slow_down(module, args):
    if type(module).__name__ == "Model":
        time.sleep(0.005)


nn.modules.module.register_module_forward_pre_hook(slow_down)


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        return nn.functional.gelu(self.linear(x))
