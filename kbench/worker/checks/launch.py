"""Did every launch on the GPU succeed?"""

from __future__ import annotations

from kbench.records import CheckResult
from kbench.worker.checks.results import failed, passed
from kbench.worker.evidence import Evidence


def check(evidence: Evidence) -> CheckResult:
    """Fail on an error that a launch left behind: outputs may match by what lay in memory before."""
    if evidence.cuda_error:
        return failed("launch", f"CUDA error after the call: {evidence.cuda_error}")
    return passed("launch")
