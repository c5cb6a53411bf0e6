"""Is there a NaN where the reference has none?"""

from __future__ import annotations

import torch

from kbench.records import CheckResult
from kbench.worker.checks.results import failed, passed
from kbench.worker.evidence import Evidence
from kbench.worker.memory import POISON_BYTE

# What NaN of the judge's own making tells.
_NO_INPUT = "; they were read where no input lies: outside of it, before it is there, or in a later call, when it has been taken back"


def check(evidence: Evidence) -> CheckResult:
    """Compare where NaN stands; the reference's own NaN is an error of the task unless it is allowed."""
    for leaf, actual in zip(evidence.expected, evidence.actual, strict=True):
        if leaf.tensor is None or actual is None or not (actual.is_floating_point() or actual.is_complex()):
            continue
        wrong = torch.isnan(actual) != torch.isnan(leaf.tensor)
        if count := int(wrong.sum()):
            where = wrong.nonzero()[0].tolist()
            cause = _NO_INPUT if _is_poison(actual[wrong & torch.isnan(actual)]) else ""
            return failed("nan", f"{leaf.path}: {count} of {actual.numel()} elements are NaN on one side only, first at {where}{cause}")
    return passed("nan")


def _is_poison(values: torch.Tensor) -> bool:
    """Whether some of these values are what fills the memory around inputs, bit for bit."""
    bits = values.contiguous().view(torch.uint8).reshape(-1, values.element_size())
    return bool((bits == POISON_BYTE).all(dim=1).any())
