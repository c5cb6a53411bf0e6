"""compute-sanitizer's tools around a candidate, in processes that the zygote forks, and what they found."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbench import findings
from kbench.records import CheckResult, Status
from kbench.sandbox import Ending, Scratch, Worker, Zygote

NAME = "compute-sanitizer"
# The name of a tool's result in a record: `sanitize:racecheck`.
FAMILY = "sanitize"
# What the process prints that came to its end; see `worker.sanitized`.
_DONE = "kbench: every call was made"
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run: the tool's path, the request and policy for the process under it, what it may use, and how long."""

    tool: str
    request: Mapping[str, Any]
    policy: Mapping[str, Any]
    gpu: str
    limits: Mapping[str, Any]
    timeout_s: float


def find_tool() -> str:
    """The path of compute-sanitizer: on PATH, or in the CUDA toolkit; empty where there is none."""
    folders = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    places = [Path(folder) / part / NAME for folder in folders if folder for part in ("bin", "compute-sanitizer")]
    return shutil.which(NAME) or next((str(path) for path in places if os.access(path, os.X_OK)), "")


def skipped(why: str) -> list[CheckResult]:
    """A result for each tool that says why none ran."""
    return [CheckResult(name=f"{FAMILY}:{which}", status=Status.SKIP, detail=why) for which in findings.TOOLS]


async def sanitize(zygote: Zygote, plan: Plan, inputs: Scratch) -> list[CheckResult]:
    """Run every tool, side by side; what each found in the candidate's own kernels.

    `inputs` holds the files that the request names.
    """
    return list(await asyncio.gather(*(_run(zygote, plan, inputs, which) for which in findings.TOOLS)))


async def _run(zygote: Zygote, plan: Plan, inputs: Scratch, which: str) -> CheckResult:
    started = time.monotonic()
    scratch, reports = Scratch(), Scratch()
    report = reports.path / f"{which}.xml"
    readable = [*plan.policy["readable"], str(inputs.path)]
    args = {
        "tool": plan.tool,
        "which": which,
        "report": str(report),
        "scratch": str(scratch.own),
        "request": dict(plan.request),
        "policy": {**plan.policy, "readable": readable, "scratch": str(scratch.own)},
        "gpu": plan.gpu,
        "limits": dict(plan.limits),
    }
    worker = zygote.spawn("sanitizer", args)
    try:
        ending = await asyncio.wait_for(asyncio.shield(worker.ended), plan.timeout_s)
    except TimeoutError:
        ending = None
        await worker.end()
    except BaseException:
        await worker.end()
        raise
    try:
        status, detail = _conclude(which, _read(report), ending, worker, plan.timeout_s)
    finally:
        for folder in (scratch, reports):
            folder.remove()
    return CheckResult(name=f"{FAMILY}:{which}", status=status, detail=detail, seconds=time.monotonic() - started)


def _read(report: Path) -> bytes:
    try:
        with report.open("rb") as file:
            return file.read(findings.LIMIT_BYTES + 1)
    except OSError:
        return b""


def _conclude(which: str, data: bytes, ending: Ending | None, worker: Worker, timeout_s: float) -> tuple[Status, str]:
    """Found something, found nothing, or did not come to an end: that is no finding, and no proof either."""
    try:
        found = findings.parse(data) if data else []
    except ValueError as error:
        return Status.ERROR, f"{which}: its report cannot be read: {error}"
    if found:
        return Status.FAIL, _told(found)
    if ending is None:
        return Status.ERROR, f"{which}: no end in {timeout_s:g} s; `--timeout` allows more, `--case` chooses a smaller case"
    words = worker.output_tail
    if data and _DONE in words:
        return Status.PASS, ""
    lines = [line for line in words.strip().splitlines() if line.strip() and not line.startswith("frame #")]
    return Status.ERROR, f"{which}: the candidate did not come to its end under it: {ending.describe()}{'; ' + lines[-1][:300] if lines else ''}"


def _told(found: Sequence[findings.Finding]) -> str:
    more = f"; {len(found) - _SHOWN} more places" if len(found) > _SHOWN else ""
    return "; ".join(finding.describe() for finding in found[:_SHOWN]) + more
