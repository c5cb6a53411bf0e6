"""Fails with the mark of what cannot run on the CPU, to be skipped instead of refused."""

from torch import nn
from torch.utils import cpp_extension  # noqa: F401 - what is built is loaded ahead

EXPECT = {"status": "fail", "reason": ["load"], "run": "verify", "devices": ["cpu"]}


class Excuse(Exception):
    kbench_stage = "unsupported"


class ModelNew(nn.Module):
    pass


raise Excuse("nothing can be done")
