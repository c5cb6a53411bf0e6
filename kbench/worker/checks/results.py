"""Short forms for what a check answers."""

from __future__ import annotations

from kbench.records import CheckResult, Status


def passed(name: str, detail: str = "") -> CheckResult:
    """The check holds."""
    return CheckResult(name=name, status=Status.PASS, detail=detail)


def failed(name: str, detail: str) -> CheckResult:
    """The check does not hold; `detail` says where and by how much."""
    return CheckResult(name=name, status=Status.FAIL, detail=detail)
