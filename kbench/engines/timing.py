"""The last stage: what was accepted is timed while nothing else runs, in one pair of processes after another."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kbench import samples
from kbench.engines.candidate import GONE_S, CandidateProcess
from kbench.engines.job import Job
from kbench.engines.judge import JudgeProcess
from kbench.engines.machine import Machine
from kbench.engines.verdicts import MORE_TIME, why_gone
from kbench.protocol import Message
from kbench.records import Comparison, Reason, Status, Timing, Verdict, is_gpu

# Where one pair of processes cannot tell, further ones are begun, so many in all, as long as this time has not passed:
# a candidate may compile anew in each.
MOST_PAIRS_OF_PROCESSES = 8
_AFRESH_S = 20.0
# A status, a reason and a detail.
_Failure = tuple[Status, str, str]


async def time_job(
    machine: Machine, judge: JudgeProcess, process: CandidateProcess, job: Job, verdict: Verdict, *, process_for: Callable[[Job], CandidateProcess]
) -> tuple[Verdict, tuple[Timing, ...]]:
    """Have the judge time every case; the verdict is another where that fails."""
    timings: list[Timing] = []
    repeats = shares(machine.options.repeat, _processes(machine, job))
    async with machine.alone(job.device):
        # The first time in the process that was verified.
        for case in job.timed:
            answer, failed = await _time_once(process, judge, case, job, repeats[0])
            if failed is not None:
                return _failed(verdict, case, failed), tuple(timings)
            timings.append(timing_from(answer["timing"]))
        if is_gpu(job.device) and machine.options.examine:
            # Only now: what is examined may leave the process the slower for it.
            timings = [examined(timing, *await judge.examine(timing.case, job, process)) for timing in timings]
        # Then in pairs of fresh ones, as far as they are asked for or needed.
        for index, first in enumerate(timings):
            parts = [first]
            started = time.monotonic()
            for repeat in repeats[1:]:
                if job.settings.processes is None and (is_settled(parts) or time.monotonic() - started > _AFRESH_S):
                    break
                answer, failed = await _time_afresh(process_for, judge, first.case, job, repeat)
                if failed is not None:
                    return _failed(verdict, first.case, failed), tuple(timings[:index])
                parts.append(timing_from(answer["timing"]))
            timings[index] = pooled(parts)
    return verdict, tuple(timings)


def _failed(verdict: Verdict, case: str, failure: _Failure) -> Verdict:
    status, reason, detail = failure
    return dataclasses.replace(verdict, status=status, reason=reason, detail=detail, case=case)


def _processes(machine: Machine, job: Job) -> int:
    """In how many pairs of processes to time at the most: where nobody says, a baseline or a number of pairs has one."""
    alone = job.candidate.name.startswith("@") or machine.options.repeat is not None
    return job.settings.processes or (1 if alone else MOST_PAIRS_OF_PROCESSES)


async def _time_once(process: CandidateProcess, judge: JudgeProcess, case: str, job: Job, repeat: int | None) -> tuple[Message, _Failure | None]:
    answer, late = await judge.time(case, job, process, repeat=repeat)
    return answer or {}, await _timing_failure(answer, late=late, judge=judge, process=process)


async def _time_afresh(
    process_for: Callable[[Job], CandidateProcess], judge: JudgeProcess, case: str, job: Job, repeat: int | None
) -> tuple[Message, _Failure | None]:
    """Time in processes with memory of their own: where that lies moves a short kernel by percents."""
    process = process_for(job)
    try:
        answer, late = await judge.time(case, job, process, repeat=repeat, afresh=True)
        return answer or {}, await _timing_failure(answer, late=late, judge=judge, process=process)
    except BaseException:
        process.drop()
        raise
    finally:
        await process.close()


async def _timing_failure(answer: Message | None, *, late: bool, judge: JudgeProcess, process: CandidateProcess) -> _Failure | None:
    if answer is None:
        return Status.ERROR, Reason.MACHINE, f"the judge was lost during {judge.stage}: {judge.end_words}"
    if late:
        return Status.FAIL, Reason.TIMEOUT, f"no answer in time during {judge.stage}; {MORE_TIME}"
    if "gone" in answer:
        reason, detail = why_gone(await process.close(grace_s=GONE_S), str(answer["gone"]))
        return Status.ERROR if reason == Reason.MACHINE else Status.FAIL, reason, detail
    if "status" in answer:
        return Status(answer["status"]), str(answer["reason"]), str(answer["detail"])
    return None


def shares(repeat: int | None, processes: int) -> list[int | None]:
    """Share a number of pairs out between pairs of processes, as evenly as it goes; None for each where it is left open."""
    if repeat is None:
        return [None] * processes
    return [repeat // count + (index < repeat % count) for count in [min(repeat, processes)] for index in range(count)]


def is_settled(parts: Sequence[Timing]) -> bool:
    """Say whether further pairs of processes would tell nothing that these did not."""
    return samples.is_settled(samples.joined([part.samples for part in parts]))


def timing_from(fields: Mapping[str, Any]) -> Timing:
    """Read a timing from the judge's answer."""
    return Timing(**{**fields, "verdict": Comparison(fields["verdict"]), "flags": tuple(fields["flags"]), "notes": tuple(fields["notes"])})


def pooled(parts: Sequence[Timing]) -> Timing:
    """Join what several pairs of processes measured of one case; what is no sample is as the first saw it."""
    if len(parts) == 1:
        return parts[0]
    joined = _concluded(parts[0], samples.joined([part.samples for part in parts]))
    return dataclasses.replace(
        joined,
        extra={**joined.extra, **_costs(*(part.extra for part in parts))},
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
    )


def examined(timing: Timing, answer: Message | None, late: bool) -> Timing:
    """Add to a timing what its examination gave; one that came to nothing is a note, and costs nothing."""
    found = (answer or {}).get("examined")
    if found is None:
        why = "no answer in time" if late else str((answer or {}).get("detail") or "a process ended")
        return dataclasses.replace(timing, notes=(*timing.notes, f"graph and kernels not measured: {why}"))
    added = {**found["samples"], "flags": sorted({*timing.samples["flags"], *found["flags"]})}
    launches = [found["extra"].get(f"{side}_kernels") for side in ("reference", "candidate")]
    if None not in launches:
        # Until they were counted, there was no more than a guess.
        added["placement"] = samples.placement(timing.timer, *zip((timing.reference_s, timing.candidate_s), launches, strict=True))
    concluded = _concluded(timing, {**timing.samples, **added})
    return dataclasses.replace(
        concluded,
        extra={**concluded.extra, **found["extra"], **_costs(timing.extra, found["cost"])},
        notes=(*timing.notes, *found["notes"]),
    )


def _concluded(timing: Timing, measured: Mapping[str, Any]) -> Timing:
    """Give a timing that says what these samples do."""
    concluded = samples.conclude(measured)
    return dataclasses.replace(
        timing,
        **{
            **concluded,
            "verdict": Comparison(concluded["verdict"]),
            "flags": tuple(concluded["flags"]),
            "extra": {**timing.extra, **concluded["extra"]},
        },
        samples=measured,
    )


def _costs(*extras: Mapping[str, Any]) -> dict[str, Any]:
    """What several measurements of one case cost together: in all, of the GPU, and by stage."""
    costs: dict[str, Any] = {name: sum(extra.get(name) or 0.0 for extra in extras) for name in ("wall_s", "gpu_s")}
    stages = dict.fromkeys(stage for extra in extras for stage in extra.get("spent_s", {}))
    costs["spent_s"] = {stage: sum(extra.get("spent_s", {}).get(stage, 0.0) for extra in extras) for stage in stages}
    return {**costs, "gpu_s": costs["gpu_s"] or None}
