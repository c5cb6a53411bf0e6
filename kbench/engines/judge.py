"""A judge's process, seen from the engine."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kbench.engines.candidate import CandidateProcess, load_request, visible
from kbench.engines.job import Job
from kbench.engines.machine import LAST_WORDS_S, Machine
from kbench.protocol import Closed, Message, ProtocolError
from kbench.records import CUDA_ON_CPU, Candidate, is_gpu
from kbench.sandbox import channel_pair

# What a judge gets beyond the candidate's own deadline to notice that the candidate has gone.
_JUDGE_GRACE_S = 60.0
# Counting a reference's work takes seconds at the most; who needs longer is counted by the judge.
_COUNT_S = 30.0


class JudgeProcess:
    """A judge, seen from the engine."""

    def __init__(self, machine: Machine, job: Job, *, threads: int) -> None:
        self.key = job.key
        self.stage = "start"
        self.end_words = ""
        self._machine = machine
        # The processes that run the reference, by what for: `time` and `examine`.
        self._references: dict[str, CandidateProcess] = {}
        self._channel, fd = channel_pair()
        opening = opening_of(machine, job, threads)
        self._worker = machine.zygote.spawn("judge", {"opening": opening, "gpu": visible(job.device)}, [fd])
        # On a GPU a time is held against the speed of light: the work is counted while others build and verify.
        self._work = asyncio.create_task(count_work(machine, job, opening)) if job.timed and is_gpu(job.device) else None

    @property
    def alive(self) -> bool:
        """Whether it can still be asked."""
        return not self._worker.ended.done() and not self.end_words

    async def ask(self, request: Message, fds: list[int], *, label: str, process: CandidateProcess, timeout_s: float) -> tuple[Message | None, bool]:
        """Send a request; its answer (None where the judge was lost) and whether the candidate's time ran out."""
        await self._channel.send(request, fds)
        for fd in fds:
            os.close(fd)
        try:
            return await asyncio.wait_for(self._answer(label), timeout_s), False
        except TimeoutError:
            stage = self.stage
            await process.close()
            # A judge that is busy with the reference does not hear of it.
            grace_s = 0.0 if stage.startswith("reference") else _JUDGE_GRACE_S
            try:
                answer = await asyncio.wait_for(self._answer(label), grace_s)
            except (TimeoutError, Closed, ProtocolError):
                await self._lost("no answer after its candidate was ended")
                return None, True
            self.stage = stage
            return answer, True
        except (Closed, ProtocolError) as error:
            await self._lost(str(error))
            return None, False

    async def _answer(self, label: str) -> Message:
        while True:
            message = await self._channel.receive()
            if message.get("event") != "stage":
                return message
            self.stage = str(message["stage"])
            self._machine.events.stage(label, self.stage)

    async def _lost(self, words: str) -> None:
        ending = await self._worker.end(grace_s=LAST_WORDS_S)
        tail = self._worker.output_tail.strip().splitlines()
        self.end_words = f"{words}; {ending.describe()}{'; ' + tail[-1] if tail else ''}"

    async def time(self, case: str, job: Job, process: CandidateProcess, *, repeat: int | None, afresh: bool = False) -> tuple[Message | None, bool]:
        """Have the judge time one case, `repeat` pairs of it; the process that runs the reference starts with the first.

        With `afresh`, in `process`, which is new, against a reference in a new process, for this once.
        """
        if not afresh:
            return await self._ask_of_case("time", case, job, process, repeat=repeat)
        reference = self._reference_process(job)
        try:
            request = {"reference_module": _reference_module(job), "candidate": load_request(job.candidate)}
            fds = [reference.open_for_judge(), process.open_for_judge()]
            return await self._ask_of_case("time", case, job, process, repeat=repeat, more=request, fds=fds)
        finally:
            await reference.close()

    async def examine(self, case: str, job: Job, process: CandidateProcess) -> tuple[Message | None, bool]:
        """Have the judge examine one case that it has timed, against a reference in a process of its own."""
        if not self.alive:
            return None, False
        return await self._ask_of_case("examine", case, job, process)

    async def _ask_of_case(
        self,
        op: str,
        case: str,
        job: Job,
        process: CandidateProcess,
        *,
        repeat: int | None = None,
        more: Message | None = None,
        fds: Sequence[int] = (),
    ) -> tuple[Message | None, bool]:
        settings = job.settings
        request: Message = {
            "op": op,
            "baseline": job.candidate.name.startswith("@"),
            "case": case,
            "settings": {
                "repeat": repeat,
                "precision": settings.precision,
                "budget_s": settings.budget_s,
                "threads": self._machine.options.cores,
                "energy": self._machine.options.energy,
                "gpu_busy_before": self._machine.gpu_facts(job.device).get("utilisation"),
            },
        }
        if op == "time" and self._work is not None:
            request["work"] = (await self._work).get(case)
        fds = [*fds]
        if more is None and op not in self._references:
            self._references[op] = self._reference_process(job)
            fds.append(self._references[op].open_for_judge())
            request["reference_module"] = _reference_module(job)
        return await self.ask({**request, **(more or {})}, fds, label=job.candidate.label, process=process, timeout_s=settings.timeout_s)

    def _reference_process(self, job: Job) -> CandidateProcess:
        reference = Candidate(task=job.task.name, name="reference", source=job.task.reference)
        return CandidateProcess(
            self._machine,
            reference,
            device=job.device,
            threads=self._machine.options.cores,
            hide_gpu=not is_gpu(job.device),
            trusted=True,
        )

    async def calls(self, job: Job, folder: Path) -> Message:
        """Have inputs written for a process that it does not talk to; its answer, empty where it was lost."""
        try:
            await self._channel.send({"op": "calls", "cases": [case.name for case in job.cases], "folder": str(folder)})
            return await asyncio.wait_for(self._answer(job.candidate.label), job.settings.timeout_s)
        except (Closed, ProtocolError, TimeoutError) as error:
            await self._lost(str(error))
            return {}

    async def close_candidate(self) -> None:
        """Have the judge let go of the candidate it has."""
        if not self.alive:
            return
        try:
            await self._channel.send({"op": "close"})
            await asyncio.wait_for(self._answer(""), _JUDGE_GRACE_S)
        except (Closed, ProtocolError, TimeoutError) as error:
            await self._lost(str(error))

    async def close(self) -> None:
        """End it."""
        self._channel.close()
        if self._work is not None:
            self._work.cancel()
        for process in self._references.values():
            await process.close()
        await self._worker.end()


def _reference_module(job: Job) -> str:
    return f"kbench_reference_{job.task.reference.stem}"


def opening_of(machine: Machine, job: Job, threads: int) -> dict[str, Any]:
    """What a judge is told as it starts."""
    settings = job.settings
    return {
        "task": job.task.name,
        "reference": str(job.task.reference),
        "device": "cuda:0" if is_gpu(job.device) else "cpu",
        "cuda_on_cpu": job.device == CUDA_ON_CPU,
        "seed": machine.options.seed,
        "trials": settings.trials,
        "threads": threads,
        "beyond_inputs": settings.domain == "any",
        "strict_float32": settings.arithmetic == "float32",
        "cache": str(machine.options.cache),
        "driver": machine.facts["driver"],
        "draws": settings.draws,
        "tolerance": {
            "by_dtype": {name: [pair.atol, pair.rtol] for name, pair in settings.tolerances.items()},
            "default": [settings.atol, settings.rtol],
            "allow_nan": settings.allow_nan,
        },
        "cases": [{**dataclasses.asdict(case)} for case in job.task.cases],
    }


async def count_work(machine: Machine, job: Job, opening: Mapping[str, Any]) -> dict[str, Any]:
    """Count what each timed case has to do, in a process without a GPU; nothing where that fails."""
    channel, fd = channel_pair()
    wanted = {name: opening[name] for name in ("reference", "seed", "task")}
    cases = [case for case in opening["cases"] if case["name"] in job.timed]
    worker = machine.zygote.spawn("counter", {**wanted, "cases": cases}, [fd])
    try:
        return dict((await asyncio.wait_for(channel.receive(), _COUNT_S))["work"])
    except (Closed, ProtocolError, TimeoutError):
        return {}
    finally:
        channel.close()
        await worker.end()
