"""Did the call leave the random generators where the reference left them?"""

from __future__ import annotations

from kbench.records import CheckResult
from kbench.worker.checks.results import passed
from kbench.worker.evidence import Evidence


def check(evidence: Evidence) -> CheckResult:
    """Note a generator that stands elsewhere: a caller that draws next gets other numbers.

    Outputs that rest on other draws fail in `values` already, so this is a warning.
    """
    moved = [name for name, state in evidence.expected_generators.items() if evidence.generators.get(name) != state]
    if moved:
        note = f"the {' and '.join(moved)} generator is left in another state than the reference leaves it in"
        evidence.notes.append(note)
        return passed("draws", note)
    return passed("draws")
