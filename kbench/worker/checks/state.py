"""Are the parameters and buffers that the reference has as they were?"""

from __future__ import annotations

from kbench.records import CheckResult
from kbench.worker.checks.results import failed, passed
from kbench.worker.evidence import Evidence


def check(evidence: Evidence) -> CheckResult:
    """Fail where a call changed weights and the reference's did not change its own."""
    if evidence.state_changed and not evidence.reference_state_changed:
        return failed("state", f"the call changed {', '.join(evidence.state_changed[:4])}")
    return passed("state")
