"""Fails with the mark of a machine that cannot build, so that nobody is to blame."""

from torch import nn
from torch.utils import cpp_extension  # noqa: F401 - what is built is loaded ahead

EXPECT = {"status": "fail", "reason": ["load"], "run": "verify", "devices": ["cpu"]}


class Excuse(Exception):
    kbench_stage = "toolchain"


class ModelNew(nn.Module):
    pass


raise Excuse("nothing can be done")
