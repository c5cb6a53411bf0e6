"""Did the candidate change what belongs to everyone: torch's functions, its settings, the interpreter's?"""

from __future__ import annotations

from kbench.records import CheckResult
from kbench.worker.checks.results import failed, passed
from kbench.worker.evidence import Evidence


def check(evidence: Evidence) -> CheckResult:
    """Fail on any change of global state since before the candidate was loaded (worker/globals.py)."""
    if evidence.globals_changed:
        return failed("patched", f"the candidate changed {', '.join(evidence.globals_changed[:6])}")
    return passed("patched")
