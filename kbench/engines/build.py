"""The first stage: a candidate's extensions are built ahead of its turn, in a process without a GPU."""

from __future__ import annotations

import asyncio
import time

from kbench.claims import Claims
from kbench.engines.candidate import CandidateProcess, load_request
from kbench.engines.job import Job, builds
from kbench.engines.machine import Machine
from kbench.engines.queue import pool_of
from kbench.engines.verdicts import MORE_TIME, base_verdict, slow_on_cpu
from kbench.protocol import Closed, Message, ProtocolError
from kbench.records import CUDA_ON_CPU, Reason, Status, Verdict
from kbench.sandbox import ParentChannel


class Builds:
    """The builds that are under way, of all lanes."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._compiling = asyncio.Semaphore(max(1, machine.options.cores))
        self._under_way: dict[tuple[str, str], asyncio.Task[Message]] = {}

    def ahead(self, job: Job) -> None:
        """Begin to build what a job needs, unless that is under way."""
        key = (job.candidate.label, pool_of(job))
        if builds(job) and key not in self._under_way:
            self._under_way[key] = asyncio.create_task(self._build(job))

    async def built(self, job: Job) -> Message:
        """Wait for the build of a job, and forget it; empty where it builds nothing."""
        self.ahead(job)
        key = (job.candidate.label, pool_of(job))
        task = self._under_way.get(key)
        if task is None:
            return {}
        try:
            return await task
        finally:
            self._under_way.pop(key, None)

    async def with_lines(self, job: Job) -> Message:
        """Build a candidate's extensions once more, with line information."""
        return await self._build(job, lines=True) if builds(job) else {"ok": True, "builds": {}}

    def cancel(self) -> None:
        """The run is over: what is under way is for nobody."""
        for task in self._under_way.values():
            task.cancel()

    async def _build(self, job: Job, *, lines: bool = False) -> Message:
        """Load a candidate where there is no GPU, so that what it builds is in the cache; its answer."""
        async with self._compiling, self._machine.beside_others("cpu"):
            self._machine.events.stage(job.candidate.label, "build")
            started = time.monotonic()
            device = CUDA_ON_CPU if job.device == CUDA_ON_CPU else "cpu"
            process = CandidateProcess(self._machine, job.candidate, device=device, threads=1, hide_gpu=True, lines=lines)
            channel = process.open()
            try:
                answer = await asyncio.wait_for(self._ask_to_load(channel, job), job.settings.timeout_s)
            except TimeoutError:
                answer = {"timeout": True}
            except (Closed, ProtocolError):
                answer = {"gone": True}
            finally:
                channel.close()
                await process.close()
            found = {"builds": process.service.built, "records": tuple(process.service.records), "refused": process.service.refused}
            return {**answer, **found, "build_s": time.monotonic() - started}

    async def _ask_to_load(self, channel: ParentChannel, job: Job) -> Message:
        await channel.receive()
        await channel.send({"op": "load", **load_request(job.candidate)})
        answer = Claims(await channel.receive())
        return {"ok": answer.flag("ok"), **{name: answer.text(name) for name in ("stage", "message", "log")}}


def build_verdict(job: Job, build: Message) -> Verdict | None:
    """A build that failed is the candidate's fault; a load that failed there is tried again by the judge.

    That the machine is at fault is believed where a builder said so, that CUDA cannot run on a CPU where it is to.
    """
    if build.get("stage") == "build":
        return base_verdict(job, Status.FAIL, Reason.BUILD, build["message"], output_tail=build["log"])
    if build.get("stage") == "toolchain" and build["refused"]:
        status = Status.SKIP if job.skip else Status.ERROR
        detail = f"{job.skip}; not built: {build['refused']}" if job.skip else f"cannot be built: {build['refused']}"
        return base_verdict(job, status, "" if job.skip else Reason.MACHINE, detail)
    if build.get("stage") == "unsupported" and job.device == CUDA_ON_CPU:
        return base_verdict(job, Status.SKIP, "", f"cannot run on the CPU: {build['message']}")
    if build.get("timeout") and job.device == CUDA_ON_CPU:
        return slow_on_cpu(job, "build")
    if build.get("timeout"):
        return base_verdict(job, Status.FAIL, Reason.TIMEOUT, f"no answer in {job.settings.timeout_s:g} s during build; {MORE_TIME}")
    if job.skip:
        built = "built all the same" if build.get("ok") else f"not built: {build.get('message', 'its process ended')}"
        return base_verdict(job, Status.SKIP, "", f"{job.skip}; {built}")
    return None
