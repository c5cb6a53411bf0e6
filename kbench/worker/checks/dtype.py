"""Does each tensor have the reference's dtype?"""

from __future__ import annotations

from kbench.records import CheckResult
from kbench.worker import tensors
from kbench.worker.checks.results import failed, passed
from kbench.worker.evidence import Evidence


def check(evidence: Evidence) -> CheckResult:
    """Compare dtypes leaf by leaf."""
    for leaf, (_, actual) in zip(evidence.returned, tensors.leaves(evidence.tree), strict=True):
        if leaf.tensor is not None and actual["dtype"] != leaf.spec["dtype"]:
            return failed("dtype", f"{leaf.path}: dtype {actual['dtype']}, expected {leaf.spec['dtype']}")
    return passed("dtype")
