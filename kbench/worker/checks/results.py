"""Short forms for what a check answers."""

from __future__ import annotations

import torch

from kbench.records import CheckResult, Status
from kbench.worker.memory import POISON_BYTES

# What a value of the judge's own making tells.
_NO_INPUT = "; they were read where no input lies: outside of it, before it is there, or in a later call, when it has been taken back"


def passed(name: str, detail: str = "") -> CheckResult:
    """The check holds."""
    return CheckResult(name=name, status=Status.PASS, detail=detail)


def failed(name: str, detail: str) -> CheckResult:
    """The check does not hold; `detail` says where and by how much."""
    return CheckResult(name=name, status=Status.FAIL, detail=detail)


def no_input(values: torch.Tensor) -> str:
    """The words for it where some of these wrong values are what fills the memory around inputs, bit for bit; else empty."""
    bits = values.contiguous().reshape(-1).view(torch.uint8).reshape(-1, values.element_size())
    return _NO_INPUT if any(bool((bits == byte).all(dim=1).any()) for byte in POISON_BYTES) else ""
