"""Does each tensor have the reference's shape? Nothing is broadcast."""

from __future__ import annotations

from kbench.records import CheckResult
from kbench.worker import tensors
from kbench.worker.checks.results import failed, passed
from kbench.worker.evidence import Evidence


def check(evidence: Evidence) -> CheckResult:
    """Compare shapes leaf by leaf."""
    for leaf, (_, actual) in zip(evidence.returned, tensors.leaves(evidence.tree), strict=True):
        if leaf.tensor is not None and actual["shape"] != leaf.spec["shape"]:
            return failed("shape", f"{leaf.path}: shape {actual['shape']}, expected {leaf.spec['shape']}")
    for leaf, left in zip(evidence.expected, evidence.actual, strict=True):
        if leaf.input is not None and left is None:
            return failed("shape", f"{leaf.path}: no longer of shape {leaf.spec['shape']}")
    return passed("shape")
