"""Is there a NaN where the reference has none?"""

from __future__ import annotations

import torch

from kbench.records import CheckResult
from kbench.worker.checks.results import failed, no_input, passed
from kbench.worker.evidence import Evidence


def check(evidence: Evidence) -> CheckResult:
    """Compare where NaN stands; the reference's own NaN is an error of the task unless it is allowed."""
    for leaf, actual in zip(evidence.expected, evidence.actual, strict=True):
        if leaf.tensor is None or actual is None or not (actual.is_floating_point() or actual.is_complex()):
            continue
        wrong = torch.isnan(actual) != torch.isnan(leaf.tensor)
        if count := int(wrong.sum()):
            where = wrong.nonzero()[0].tolist()
            cause = no_input(actual[wrong & torch.isnan(actual)])
            return failed("nan", f"{leaf.path}: {count} of {actual.numel()} elements are NaN on one side only, first at {where}{cause}")
    return passed("nan")
