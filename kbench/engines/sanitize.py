"""A stage where asked for: compute-sanitizer's tools around a candidate, in processes that the zygote forks, and what they found."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbench import findings
from kbench.engines.candidate import MAX_PROCESSES, CandidateProcess, load_request, visible
from kbench.engines.job import Job
from kbench.engines.judge import JudgeProcess
from kbench.engines.machine import Machine
from kbench.protocol import Message
from kbench.records import CheckResult, Reason, Status, Verdict, contract, is_gpu
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


async def sanitize_job(
    machine: Machine, build_with_lines: Callable[[Job], Awaitable[Message]], judge: JudgeProcess, process: CandidateProcess, job: Job, verdict: Verdict
) -> Verdict:
    """Have compute-sanitizer look at a candidate that loads, right or wrong: a fault often says why it is wrong."""
    if verdict.status not in (Status.PASS, Status.FAIL) or verdict.reason == Reason.LOAD or job.candidate.name.startswith("@"):
        return verdict
    tool = find_tool()
    if not is_gpu(job.device):
        return with_tools(verdict, skipped("needs CUDA: it watches kernels on a GPU"))
    if not tool:
        return with_tools(verdict, skipped("compute-sanitizer not found; it is in the CUDA toolkit: put its folder on PATH, or set CUDA_HOME"))
    built = await build_with_lines(job)
    if built.get("ok") is not True and built.get("stage") in ("build", "toolchain"):
        return with_tools(verdict, skipped(f"cannot be built with line information: {built.get('message')}"))
    inputs = Scratch().make()
    try:
        async with machine.beside_others(job.device):
            answer = await judge.calls(job, inputs.path)
            if "calls" not in answer:
                return with_tools(verdict, skipped(f"no inputs: {answer.get('detail', judge.end_words)}"))
            machine.events.stage(job.candidate.label, FAMILY)
            request = {**load_request(job.candidate), "builds": built.get("builds", {}), "device": "cuda:0", "cases": answer["calls"]}
            plan = Plan(
                tool=tool,
                request=request,
                policy={"readable": process.may_read(), "hidden": [str(path) for path in machine.options.hidden], "gpu": True},
                gpu=visible(job.device),
                limits={"memory_bytes": machine.options.memory_bytes, "max_processes": MAX_PROCESSES},
                timeout_s=job.settings.timeout_s,
            )
            return with_tools(verdict, await sanitize(machine.zygote, plan, inputs))
    finally:
        inputs.remove()


def with_tools(verdict: Verdict, results: Sequence[CheckResult]) -> Verdict:
    """Add what compute-sanitizer's tools said; a finding fails an accepted candidate, a tool without an end is an error."""
    checks = (*verdict.checks, *results)
    words = {status: [f"{result.name}: {result.detail}" for result in results if result.status is status] for status in Status}
    skips = list(dict.fromkeys(result.detail for result in results if result.status is Status.SKIP))
    told = [*words[Status.FAIL], *words[Status.ERROR], *(f"{FAMILY}: skip: {why}" for why in skips)]
    if verdict.status is Status.PASS:
        for status in (Status.FAIL, Status.ERROR):
            first = next((result for result in results if result.status is status), None)
            if first is not None:
                reason = contract(first.name.partition(":")[2]) if status is Status.FAIL else Reason.MACHINE
                return dataclasses.replace(verdict, status=status, reason=reason, detail="; ".join(words[status]), checks=checks)
    return dataclasses.replace(verdict, checks=checks, warnings=(*verdict.warnings, *told))


async def sanitize(zygote: Zygote, plan: Plan, inputs: Scratch) -> list[CheckResult]:
    """Run every tool, side by side; what each found in the candidate's own kernels.

    `inputs` holds the files that the request names.
    """
    return list(await asyncio.gather(*(_run(zygote, plan, inputs, which) for which in findings.TOOLS)))


async def _run(zygote: Zygote, plan: Plan, inputs: Scratch, which: str) -> CheckResult:
    started = time.monotonic()
    scratch, reports = Scratch().make(), Scratch().make()
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
