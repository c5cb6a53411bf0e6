"""A lane: one judge at a time, and the candidates that it judges, through every stage."""

from __future__ import annotations

import asyncio
import dataclasses
import time

from kbench.engines.build import Builds, build_verdict
from kbench.engines.candidate import CandidateProcess
from kbench.engines.contracts import contracts_of, hold_to_contracts
from kbench.engines.job import Job, Result, builds
from kbench.engines.judge import JudgeProcess
from kbench.engines.machine import Machine
from kbench.engines.queue import CPU, Bucket, Queue, pool_of
from kbench.engines.sanitize import sanitize_job
from kbench.engines.timing import time_job
from kbench.engines.verdicts import NOT_BEGUN, decided_without_running
from kbench.engines.verify import verify
from kbench.records import Reason, Status, Timing, is_gpu

# Candidates whose extensions are built ahead of the one that is judged.
_AHEAD = 16

# Processes of candidates that come next, with their GPU contexts, by label and device.
Prefetched = dict[tuple[str, str], CandidateProcess]


class Lane:
    """One judge at a time, and the jobs it judges, in one place."""

    def __init__(self, machine: Machine, builds: Builds, prefetched: Prefetched, queue: Queue, place: str) -> None:
        self._machine = machine
        self._builds = builds
        self._prefetched = prefetched
        self._queue = queue
        self._place = place
        self._bucket: Bucket | None = None
        self._judge: JudgeProcess | None = None

    def take(self) -> Job | None:
        """The next job, of the task that it has worked on if that has one; None where there is none."""
        taken = self._queue.take(self._place, self._bucket)
        if taken is None:
            return None
        job, self._bucket = taken
        return job

    def _upcoming(self) -> list[Job]:
        assert self._bucket is not None
        return self._queue.upcoming(self._place, self._bucket, _AHEAD)

    async def run(self, job: Job) -> Result:
        """Take a job through its stages."""
        started = time.monotonic()
        early = decided_without_running(job)
        if early is not None:
            return Result(job=job, verdict=early)
        for upcoming in (job, *self._upcoming()):
            self._builds.ahead(upcoming)
        await self._begin(job)
        build = await self._builds.built(job)
        built = {"build_s": float(build.get("build_s", 0.0)), "builds": build.get("records", ())}
        if (verdict := build_verdict(job, build)) is not None:
            if (process := self._prefetched.pop((job.candidate.label, job.device), None)) is not None:
                await process.close()
            return Result(job=job, verdict=dataclasses.replace(verdict, **built, seconds=time.monotonic() - started))
        result = await self._judge_job(job)
        verdict = dataclasses.replace(
            result.verdict,
            seed=self._machine.options.seed,
            trials=job.settings.trials,
            **built,
            seconds=time.monotonic() - started,
        )
        return dataclasses.replace(result, verdict=verdict)

    async def _begin(self, job: Job) -> None:
        """Have the judge and the candidate make their GPU contexts while the candidate is built, where no clock can run meanwhile."""
        key = (job.candidate.label, job.device)
        if self._place == CPU or job.timed or not builds(job):
            return
        async with self._machine.beside_others(job.device):
            await self._open_judge(job)
            if key not in self._prefetched:
                process = self._prefetched[key] = self._process(job)
                process.start_for_judge()

    async def _judge_job(self, job: Job) -> Result:
        process = self._prefetched.pop((job.candidate.label, job.device), None) or self._process(job)
        result = await self._judge_in(process, job)
        if result.verdict.reason == Reason.MACHINE and NOT_BEGUN in result.verdict.detail:
            # It was started beside the candidate before it, which may have had all of the memory.
            result = await self._judge_in(self._process(job), job)
        return result

    async def _judge_in(self, process: CandidateProcess, job: Job) -> Result:
        try:
            result = await self._judge_with(process, job)
        except BaseException:
            # The run is over; the zygote ends every process at once, and nobody is waited for.
            self._judge = None
            process.drop()
            raise
        if self._judge is not None:
            await self._judge.close_candidate()
        await process.close()
        return result

    def _process(self, job: Job) -> CandidateProcess:
        return CandidateProcess(self._machine, job.candidate, device=job.device, threads=self._threads(job), hide_gpu=not is_gpu(job.device))

    async def _prefetch(self) -> None:
        """Start the next candidate's process while this one is verified: its GPU context takes as long as most verdicts.

        Nothing of the candidate's is loaded there yet; and it counts as work beside others, for which a clock waits.
        """
        prefetched = self._prefetched
        for job in self._upcoming() if self._place != CPU else ():
            key = (job.candidate.label, job.device)
            if key in prefetched or decided_without_running(job) is not None or pool_of(job) == CPU:
                continue
            process = prefetched[key] = self._process(job)
            async with self._machine.beside_others(job.device):
                # A lane may have come for it meanwhile.
                if prefetched.get(key) is process:
                    process.start_for_judge()
                    await process.ready()
            return

    async def _judge_with(self, process: CandidateProcess, job: Job) -> Result:
        async with self._machine.beside_others(job.device):
            judge = await self._open_judge(job)
            prefetch = asyncio.create_task(self._prefetch())
            try:
                verdict = await verify(judge, process, job)
            except BaseException:
                prefetch.cancel()
                raise
        # No longer than a context takes, and a clock would wait for it anyway.
        await prefetch
        if verdict.status is Status.PASS and (names := contracts_of(job, self._machine.options)):
            verdict = await hold_to_contracts(self._machine, judge, job, verdict, names, process_for=self._process)
        if self._machine.options.sanitize:
            verdict = await sanitize_job(self._machine, self._builds.with_lines, judge, process, job, verdict)
        timings: tuple[Timing, ...] = ()
        if verdict.status is Status.PASS and job.timed:
            verdict, timings = await time_job(self._machine, judge, process, job, verdict, process_for=self._process)
        return Result(job=job, verdict=verdict, timings=timings)

    def _threads(self, job: Job) -> int:
        options = self._machine.options
        lanes = options.jobs if self._place == CPU else options.gpu_jobs
        return options.cores if job.timed else max(1, options.cores // lanes)

    async def _open_judge(self, job: Job) -> JudgeProcess:
        if self._judge is not None and self._judge.key == job.key and self._judge.alive:
            return self._judge
        await self.close()
        self._judge = JudgeProcess(self._machine, job, threads=self._threads(job))
        return self._judge

    async def close(self) -> None:
        """End its judge."""
        if self._judge is not None:
            await self._judge.close()
            self._judge = None
