"""The second stage: the judge verifies a candidate, and its answer becomes a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kbench.engines.candidate import GONE_S, CandidateProcess, load_request
from kbench.engines.job import Job
from kbench.engines.judge import JudgeProcess
from kbench.engines.verdicts import MORE_TIME, base_verdict, slow_on_cpu, why_gone
from kbench.protocol import Message
from kbench.records import CUDA_ON_CPU, CaseVerdict, CheckResult, Reason, Status, Verdict
from kbench.sandbox import Ending


async def verify(judge: JudgeProcess, process: CandidateProcess, job: Job) -> Verdict:
    """Have the judge verify; the deadline, the crash and the loss of the judge are seen here."""
    fd = process.open_for_judge()
    request = {
        "op": "verify",
        "baseline": job.candidate.name.startswith("@"),
        **load_request(job.candidate),
        "cases": [case.name for case in job.cases],
    }
    answer, late = await judge.ask(request, [fd], label=job.candidate.label, process=process, timeout_s=job.settings.timeout_s)
    if answer is None and not (late and judge.stage.startswith("reference")):
        return base_verdict(job, Status.ERROR, Reason.MACHINE, f"the judge was lost during {judge.stage}: {judge.end_words}")
    answer = answer or {}
    ending = await process.close(grace_s=0.0 if late else GONE_S) if "gone" in answer or late else None
    return _verdict(job, answer, judge.stage, ending, late=late, output_tail=process.output_tail)


def _verdict(job: Job, answer: Message, stage: str, ending: Ending | None, *, late: bool, output_tail: str) -> Verdict:
    cases = tuple(_case_from(case) for case in answer.get("cases", []))
    worst = _worst(cases)
    more: dict[str, Any] = {
        "cases": cases,
        "checks": (worst or cases[0]).checks if cases else (),
        "warnings": tuple(dict.fromkeys(note for case in cases for note in case.warnings)),
        "max_abs_error": max((case.max_abs_error for case in cases if case.max_abs_error is not None), default=None),
        "max_rel_error": max((case.max_rel_error for case in cases if case.max_rel_error is not None), default=None),
        "sandbox": str(answer.get("sandbox", "")),
        "output_tail": output_tail,
    }
    if late and stage.startswith("reference"):
        detail = f"the reference took more than {job.settings.timeout_s:g} s; {MORE_TIME}"
        return base_verdict(job, Status.ERROR, Reason.REFERENCE, detail, **more)
    if late and job.device == CUDA_ON_CPU:
        return slow_on_cpu(job, stage, **more)
    if late:
        detail = f"no answer in {job.settings.timeout_s:g} s during {stage}; {MORE_TIME}"
        return base_verdict(job, Status.FAIL, Reason.TIMEOUT, detail, **more)
    if "gone" in answer:
        assert ending is not None
        reason, detail = why_gone(ending, str(answer["gone"]))
        status = Status.ERROR if reason == Reason.MACHINE else Status.FAIL
        return base_verdict(job, status, reason, detail, **more)
    if "status" in answer:
        more["output_tail"] = "\n".join(filter(None, [output_tail.rstrip(), str(answer.get("log") or "")]))
        return base_verdict(job, Status(answer["status"]), str(answer["reason"]), str(answer["detail"]), **more)
    if worst is None:
        return base_verdict(job, Status.PASS, "", "", **more)
    where = f"case {worst.case}: " if worst.case != "default" else ""
    return base_verdict(job, worst.status, worst.reason, where + worst.detail, case=worst.case, **more)


def _worst(cases: Sequence[CaseVerdict]) -> CaseVerdict | None:
    """The first case in error, else the first that failed; None where all passed."""
    for status in (Status.ERROR, Status.FAIL):
        for case in cases:
            if case.status is status:
                return case
    return None


def _case_from(fields: Mapping[str, Any]) -> CaseVerdict:
    checks = tuple(CheckResult(**{**check, "status": Status(check["status"])}) for check in fields["checks"])
    return CaseVerdict(
        **{
            **fields,
            "status": Status(fields["status"]),
            "checks": checks,
            "warnings": tuple(fields["warnings"]),
            "max_abs_error": _number(fields["max_abs_error"]),
            "max_rel_error": _number(fields["max_rel_error"]),
        }
    )


def _number(value: float | str | None) -> float | None:
    return float(value) if value is not None else None
