"""A stage where asked for: an accepted candidate is called as programs may call it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from kbench.config import CONTRACTS
from kbench.engines.candidate import GONE_S, CandidateProcess, load_request
from kbench.engines.job import Job, Options
from kbench.engines.judge import JudgeProcess
from kbench.engines.machine import Machine
from kbench.engines.verdicts import why_gone
from kbench.records import CheckResult, Status, Verdict, contract

# What the judge says of a contract in which the candidate's process ended; this side knows why.
_ENDED = "its process ended"


def contracts_of(job: Job, options: Options) -> tuple[str, ...]:
    """The contracts to ask: all where the run asks for them, else those that the task demands; none of a baseline."""
    if job.candidate.name.startswith("@"):
        return ()
    return CONTRACTS if options.contract or options.strict else job.settings.contract


async def hold_to_contracts(
    machine: Machine, judge: JudgeProcess, job: Job, verdict: Verdict, names: Sequence[str], *, process_for: Callable[[Job], CandidateProcess]
) -> Verdict:
    """Ask contracts in a process of its own, and in a new one after each that is broken."""
    results: list[CheckResult] = []
    async with machine.beside_others(job.device):
        while len(results) < len(names):
            asked = names[len(results)]
            process = process_for(job)
            request = {"op": "contract", **load_request(job.candidate), "cases": [case.name for case in job.cases], "names": names[len(results) :]}
            timeout_s = job.settings.timeout_s
            answer, late = await judge.ask(request, [process.open_for_judge()], label=job.candidate.label, process=process, timeout_s=timeout_s)
            ending = await process.close(grace_s=0.0 if late else GONE_S)
            if answer is None or "status" in answer:
                return with_contracts(verdict, results, required=())
            found = [CheckResult(**{**check, "status": Status(check["status"])}) for check in answer["checks"]]
            if not found:
                # It could not even be loaded again.
                found = [CheckResult(name=contract(asked), status=Status.FAIL, detail=str(answer.get("detail", "")))]
            if found[-1].detail in ("", _ENDED) and found[-1].status is Status.FAIL:
                why = f"no answer in {timeout_s:g} s" if late else why_gone(ending, judge.stage)[1]
                found[-1] = dataclasses.replace(found[-1], detail=why)
            results += found
    return with_contracts(verdict, results, required=names if machine.options.strict else job.settings.contract)


def with_contracts(verdict: Verdict, results: Sequence[CheckResult], *, required: Sequence[str]) -> Verdict:
    """Add what contracts found; one that is required and broken fails the candidate, another one is told."""
    broken = [result for result in results if result.status is Status.FAIL]
    checks = (*verdict.checks, *results)
    for result in broken:
        if result.name.partition(":")[2] in required:
            return dataclasses.replace(verdict, status=Status.FAIL, reason=result.name, detail=result.detail, checks=checks)
    return dataclasses.replace(verdict, checks=checks, warnings=(*verdict.warnings, *(f"{result.name}: {result.detail}" for result in broken)))
