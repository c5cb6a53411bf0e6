"""What several stages say: how a verdict begins, and why a process has gone."""

from __future__ import annotations

from typing import Any

from kbench.engines.candidate import MAX_PROCESSES
from kbench.engines.job import Job, builds
from kbench.records import Reason, Status, Verdict
from kbench.sandbox import Ending

NOT_BEGUN = "before it loaded the candidate"
MORE_TIME = "`timeout_s` or `--timeout` allows more"


def base_verdict(job: Job, status: Status, reason: str, detail: str, **more: Any) -> Verdict:
    """Begin a verdict on a job."""
    return Verdict(
        task=job.task.name,
        candidate=job.candidate.name,
        device=job.device,
        status=status,
        reason=reason,
        detail=detail,
        **more,
    )


def decided_without_running(job: Job) -> Verdict | None:
    """The verdict on a job that cannot run; None where it has to be judged."""
    if job.task.error:
        return base_verdict(job, Status.ERROR, Reason.REFERENCE, job.task.error)
    if job.candidate.error:
        return base_verdict(job, Status.FAIL, Reason.LOAD, job.candidate.error)
    if job.skip and not builds(job):
        return base_verdict(job, Status.SKIP, "", job.skip)
    return None


def slow_on_cpu(job: Job, stage: str, **more: Any) -> Verdict:
    """Where kernels run a thousand times slower than on a device, the time they take says nothing of them."""
    detail = f"not done on the CPU in {job.settings.timeout_s:g} s, during {stage}; {MORE_TIME}"
    return base_verdict(job, Status.SKIP, "", detail, **more)


def why_gone(ending: Ending, stage: str) -> tuple[str, str]:
    """Why a candidate's process ended during a stage: a reason and a detail."""
    if stage == "start":
        return Reason.MACHINE, f"the worker's process ended by {ending.describe()} {NOT_BEGUN}"
    if ending.cause == "lost":
        return Reason.MACHINE, f"the process that watched it was killed during {stage}; is there too little memory?"
    if ending.cause == "memory":
        return Reason.MEMORY, f"used more host memory than it may during {stage}"
    if ending.cause == "processes":
        return Reason.CRASH, f"started more than {MAX_PROCESSES} processes during {stage}"
    if ending.cause == "disk":
        return Reason.CRASH, f"filled its scratch folder during {stage}"
    if ending.cause == "flood":
        return Reason.CRASH, f"flooded its output during {stage}"
    return Reason.CRASH, f"its process ended by {ending.describe()} during {stage}"
