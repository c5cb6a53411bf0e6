"""Verdicts and timings → JSON lines, one object a candidate."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any

from kbench.claims import readable
from kbench.records import SCHEMA, Candidate, CaseVerdict, Task, Timing, Verdict


def verdict_object(verdict: Verdict) -> dict[str, Any]:
    """Give the object of `kbench verify --json`."""
    fields = {field.name: getattr(verdict, field.name) for field in dataclasses.fields(verdict)}
    fields["checks"] = [dataclasses.asdict(check) for check in verdict.checks]
    fields["warnings"] = list(verdict.warnings)
    fields["builds"] = [dataclasses.asdict(build) for build in verdict.builds]
    fields["cases"] = [_case(case) for case in verdict.cases]
    return {"schema": SCHEMA, **fields}


def timing_object(verdict: Verdict, timings: Sequence[Timing]) -> dict[str, Any]:
    """Give the object of `kbench time --json`: the verdict's, and the first timed case's figures beside all of them."""
    found: dict[str, Any] = verdict_object(verdict)
    first = timings[0] if timings else None
    names = [field.name for field in dataclasses.fields(Timing) if field.name not in ("case", "extra", "samples")]
    for name in names:
        found[name] = getattr(first, name) if first else None
    found["flags"] = list(first.flags) if first else []
    found["timings"] = [{"case": timing.case, **{name: getattr(timing, name) for name in names}, **timing.extra} for timing in timings]
    return found


def list_object(task: Task, candidate: Candidate) -> dict[str, Any]:
    """Give the object of `kbench list --json`."""
    return {
        "schema": SCHEMA,
        "task": candidate.task,
        "candidate": candidate.name,
        "language": candidate.language,
        "devices": list(candidate.devices),
        "cases": [case.name for case in task.cases],
        "source": str(candidate.source),
        "sha256": candidate.sha256,
        "error": task.error or candidate.error,
    }


def line(fields: dict[str, Any]) -> str:
    """Write an object as one line; what JSON has no number for becomes null, what no text has a question mark."""
    return json.dumps(_plain(fields), allow_nan=False)


def _case(case: CaseVerdict) -> dict[str, Any]:
    return dataclasses.asdict(case)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return readable(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
