"""Are the inputs, and the memory around them, as they were?"""

from __future__ import annotations

from kbench.records import CheckResult
from kbench.worker.checks.results import failed, passed
from kbench.worker.evidence import Evidence


def check(evidence: Evidence) -> CheckResult:
    """Compare bit for bit what the judge lent; what the reference itself writes into was compared with what it leaves there."""
    if evidence.inputs_changed:
        return failed("mutation", f"{', '.join(evidence.inputs_changed)} modified by the call")
    if evidence.inputs_reformed:
        return failed("mutation", f"{', '.join(evidence.inputs_reformed)}: another shape, stride, memory or requires_grad after the call")
    if evidence.written_outside:
        return failed("mutation", f"the call wrote where it must not: {evidence.written_outside[0]}")
    return passed("mutation")
