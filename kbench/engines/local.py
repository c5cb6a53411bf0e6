"""This machine's engine: lanes of one judge each, candidates in processes of their own.

A job goes through three stages: its extensions are built in a process without a GPU, it is judged, and,
if it was accepted and a time was asked for, it is timed while nothing else runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kbench import samples
from kbench.config import CONTRACTS
from kbench.engines import sanitize
from kbench.engines.gate import Gate, Lease
from kbench.engines.job import Events, Job, Options, Result, builds
from kbench.engines.queue import ANY_GPU, CPU, Bucket, Queue, pool_of
from kbench.errors import MachineError
from kbench.protocol import Closed, Message, ProtocolError, digest
from kbench.records import (
    CUDA_ON_CPU,
    Build,
    Candidate,
    CaseVerdict,
    CheckResult,
    Comparison,
    Environment,
    Kernel,
    Reason,
    Status,
    Timing,
    Verdict,
    contract,
    is_gpu,
)
from kbench.sandbox import Ending, ParentChannel, Scratch, Worker, Zygote, channel_pair, direct_pair

# Candidates whose extensions are built ahead of the one that is judged.
_AHEAD = 16
# What a judge gets beyond the candidate's own deadline to notice that the candidate has gone.
_JUDGE_GRACE_S = 60.0
# A worker of ours that has hung up is about to say why, and to end.
_LAST_WORDS_S = 2.0
# Counting a reference's work takes seconds at the most; who needs longer is counted by the judge.
_COUNT_S = 30.0
# What the judge says of a contract in which the candidate's process ended; this side knows why.
_ENDED = "its process ended"
# A candidate that has hung up is, as a rule, about to end.
_GONE_S = 0.5
# A GPU's context takes a fraction of a second; what takes longer is not waited for.
_READY_S = 30.0
_MAX_PROCESSES = 256
_NOT_BEGUN = "before it loaded the candidate"
# Two compilers at a time, each with some programs of its own.
_MAX_BUILD_PROCESSES = 128
# What a record keeps of a name that a candidate gave.
_NAME_LIMIT = 200
# Processes and threads together: a pool of threads for each of many libraries.
_MAX_TASKS = 2048 + 16 * (os.cpu_count() or 1)

# Where one pair of processes cannot tell, further ones are begun, so many in all, as long as this time has not passed:
# a candidate may compile anew in each.
MOST_PAIRS_OF_PROCESSES = 8
_AFRESH_S = 20.0

# A status, a reason and a detail.
_Failure = tuple[Status, str, str]


class LocalEngine:
    """Runs jobs on this machine's CPU and GPUs."""

    def __init__(self, options: Options, events: Events) -> None:
        self._options = options
        self._events = events
        self._zygote = Zygote(warm_s=options.warm_s)
        self._gate = Gate()
        self._compiling = asyncio.Semaphore(max(1, options.cores))
        self._builds: dict[tuple[str, str], asyncio.Task[Message]] = {}
        # Processes of candidates that come next, with their GPU contexts.
        self.prefetched: dict[tuple[str, str], CandidateProcess] = {}
        self._leases: dict[str, Lease] = {}
        self._built: dict[Path, set[Path]] = {}
        self._stop = False
        self.facts: dict[str, Any] = {}

    async def start(self) -> None:
        """Start the zygote and find out what this machine is.

        Raises:
            MachineError: torch cannot be imported, say.
        """
        await self._zygote.start()
        channel, fd = channel_pair()
        scratch = Scratch()
        folder = str(scratch.path)
        # Its keeper removes the folder, also where this process is killed meanwhile.
        args = {"scratch": folder, "visible": os.environ.get("CUDA_VISIBLE_DEVICES"), "limits": {"scratch": folder}}
        worker = self._zygote.spawn("probe", args, [fd])
        try:
            self.facts = await channel.receive()
        except (Closed, ProtocolError):
            ending = await worker.end(grace_s=_LAST_WORDS_S)
            words = worker.output_tail.strip().splitlines()
            raise MachineError(
                f"the machine could not be probed: {ending.describe()}; {words[-1] if words else ''}",
                hint="run `kbench doctor`",
            ) from None
        finally:
            channel.close()
            if worker.is_lost:
                scratch.remove()
        if self._options.sandbox == "require" and self.facts["sandbox"].startswith("unsandboxed"):
            raise MachineError(f"`--sandbox require`: {self.facts['sandbox']}", hint="leave it out to run without, on code that you trust")

    async def close(self) -> None:
        """End every process."""
        await self._zygote.close()

    def environment(self, device: str) -> Environment:
        """Where results of a device come from."""
        facts = self.facts
        return Environment(
            gpu=self.gpu_facts(device).get("name", ""),
            driver=facts["driver"],
            cuda=facts["cuda"],
            torch=facts["torch"],
            python=facts["python"],
            host=facts["host"],
            cpu=facts["cpu"],
        )

    def gpu_facts(self, device: str) -> dict[str, Any]:
        """What is known of the GPU of a device; nothing for a CPU."""
        if not is_gpu(device):
            return {}
        found: dict[str, Any] = self.facts["gpus"][int(device.partition(":")[2] or 0)]
        return found

    async def run(self, jobs: Sequence[Job]) -> None:
        """Run every job; results go to the events as they come."""
        queue = Queue(jobs)
        try:
            async with asyncio.TaskGroup() as group:
                for place in self.places(queue.pools()):
                    group.create_task(_Lane(self, queue, place).run())
        except BaseExceptionGroup as errors:
            # The others were cancelled because of the first.
            raise errors.exceptions[0] from None
        finally:
            for task in self._builds.values():
                task.cancel()
            for process in self.prefetched.values():
                process.drop()

    def places(self, pools: Mapping[str, int]) -> list[str]:
        """One place for each lane: some on the CPU, some on each GPU, no more than there are jobs for."""
        lanes = [CPU] * min(self._options.jobs, pools.get(CPU, 0))
        alike = self._alike() if pools.get(ANY_GPU) else []
        movable = pools.get(ANY_GPU, 0)
        for place in dict.fromkeys([*(pool for pool in pools if pool not in (CPU, ANY_GPU)), *alike]):
            count = pools.get(place, 0) + (movable if place in alike else 0)
            lanes += [place] * min(self._options.gpu_jobs, count)
        return lanes

    def _alike(self) -> list[str]:
        """The GPUs that are like the first: only among them is it all the same where a candidate runs."""
        kinds = [(gpu["name"], gpu.get("memory_bytes")) for gpu in self.facts["gpus"]]
        return [f"cuda:{index}" for index, kind in enumerate(kinds) if kind == kinds[0]]

    # What lanes use.

    @property
    def options(self) -> Options:
        """How to run."""
        return self._options

    @property
    def events(self) -> Events:
        """Whom to tell."""
        return self._events

    @property
    def zygote(self) -> Zygote:
        """Who forks."""
        return self._zygote

    @property
    def stopped(self) -> bool:
        """Whether no new job is to be begun."""
        return self._stop

    def done(self, result: Result) -> None:
        """Tell a result; a failure may be the last one wanted."""
        self._events.result(result)
        if self._options.fail_fast and result.verdict.status in (Status.FAIL, Status.ERROR):
            self._stop = True

    @contextlib.asynccontextmanager
    async def beside_others(self, device: str) -> Any:
        """Hold a device for verifying."""
        async with self._gate.shared(), self._lease(device).hold(alone=False):
            yield

    @contextlib.asynccontextmanager
    async def alone(self, device: str) -> Any:
        """Hold a device for timing."""
        async with self._gate.exclusive(device), self._lease(device).hold(alone=True):
            yield

    def _lease(self, device: str) -> Lease:
        name = self.gpu_facts(device).get("uuid", "cpu")
        if name not in self._leases:
            self._leases[name] = Lease(name, tell=self._events.note)
        return self._leases[name]

    def built_for(self, candidate: Candidate) -> frozenset[Path]:
        """The entries of the build cache that are known to be a candidate's: it may read them, and no others."""
        return frozenset(path for path in self._built.get(candidate.source, ()) if path.is_dir())

    def remember_built_for(self, candidate: Candidate, entry: Path) -> None:
        """An entry of the build cache is this candidate's."""
        self._built.setdefault(candidate.source, set()).add(entry)

    def build_ahead(self, job: Job) -> None:
        """Begin to build what a job needs, unless that is under way."""
        key = (job.candidate.label, pool_of(job))
        if builds(job) and key not in self._builds:
            self._builds[key] = asyncio.create_task(self._build(job))

    async def built(self, job: Job) -> Message:
        """Wait for the build of a job, and forget it; empty where it builds nothing."""
        self.build_ahead(job)
        key = (job.candidate.label, pool_of(job))
        task = self._builds.get(key)
        if task is None:
            return {}
        try:
            return await task
        finally:
            self._builds.pop(key, None)

    async def build_with_lines(self, job: Job) -> Message:
        """Build a candidate's extensions once more, with line information."""
        return await self._build(job, lines=True) if builds(job) else {"ok": True, "builds": {}}

    async def _build(self, job: Job, *, lines: bool = False) -> Message:
        """Load a candidate where there is no GPU, so that what it builds is in the cache; its answer."""
        async with self._compiling, self._gate.shared(), self._lease("cpu").hold(alone=False):
            self._events.stage(job.candidate.label, "build")
            started = time.monotonic()
            device = CUDA_ON_CPU if job.device == CUDA_ON_CPU else "cpu"
            process = CandidateProcess(self, job.candidate, device=device, threads=1, hide_gpu=True, lines=lines)
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
            return {**answer, "build_s": time.monotonic() - started, "builds": process.built, "records": tuple(process.records)}

    async def _ask_to_load(self, channel: ParentChannel, job: Job) -> Message:
        await channel.receive()
        await channel.send({"op": "load", **load_request(job.candidate)})
        return await channel.receive()


class _Lane:
    """One judge at a time, and the jobs it judges, in one place."""

    def __init__(self, engine: LocalEngine, queue: Queue, place: str) -> None:
        self._engine = engine
        self._queue = queue
        self._place = place
        self._bucket: Bucket | None = None
        self._judge: JudgeProcess | None = None

    async def run(self) -> None:
        """Take jobs until there are none."""
        try:
            while not self._engine.stopped and (taken := self._queue.take(self._place, self._bucket)) is not None:
                job, self._bucket = taken
                self._engine.done(await self._run_job(job))
        finally:
            await self._close_judge()

    def _upcoming(self) -> list[Job]:
        assert self._bucket is not None
        return self._queue.upcoming(self._place, self._bucket, _AHEAD)

    async def _run_job(self, job: Job) -> Result:
        started = time.monotonic()
        early = _decided_without_running(job)
        if early is not None:
            return Result(job=job, verdict=early)
        for upcoming in (job, *self._upcoming()):
            self._engine.build_ahead(upcoming)
        await self._begin(job)
        build = await self._engine.built(job)
        built = {"build_s": float(build.get("build_s", 0.0)), "builds": build.get("records", ())}
        if (verdict := _build_verdict(job, build)) is not None:
            if (process := self._engine.prefetched.pop((job.candidate.label, job.device), None)) is not None:
                await process.close()
            return Result(job=job, verdict=dataclasses.replace(verdict, **built, seconds=time.monotonic() - started))
        result = await self._judge_job(job)
        verdict = dataclasses.replace(
            result.verdict,
            seed=self._engine.options.seed,
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
        async with self._engine.beside_others(job.device):
            await self._open_judge(job)
            if key not in self._engine.prefetched:
                process = self._engine.prefetched[key] = self._process(job)
                process.start_for_judge()

    async def _judge_job(self, job: Job) -> Result:
        process = self._engine.prefetched.pop((job.candidate.label, job.device), None) or self._process(job)
        result = await self._judge_in(process, job)
        if result.verdict.reason == Reason.MACHINE and _NOT_BEGUN in result.verdict.detail:
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
        return CandidateProcess(self._engine, job.candidate, device=job.device, threads=self._threads(job), hide_gpu=not is_gpu(job.device))

    async def _prefetch(self) -> None:
        """Start the next candidate's process while this one is verified: its GPU context takes as long as most verdicts.

        Nothing of the candidate's is loaded there yet; and it counts as work beside others, for which a clock waits.
        """
        prefetched = self._engine.prefetched
        for job in self._upcoming() if self._place != CPU else ():
            key = (job.candidate.label, job.device)
            if key in prefetched or _decided_without_running(job) is not None or pool_of(job) == CPU:
                continue
            process = prefetched[key] = self._process(job)
            async with self._engine.beside_others(job.device):
                # A lane may have come for it meanwhile.
                if prefetched.get(key) is process:
                    process.start_for_judge()
                    await process.ready()
            return

    async def _judge_with(self, process: CandidateProcess, job: Job) -> Result:
        async with self._engine.beside_others(job.device):
            judge = await self._open_judge(job)
            prefetch = asyncio.create_task(self._prefetch())
            try:
                verdict = await self._verify(judge, process, job)
            except BaseException:
                prefetch.cancel()
                raise
        # No longer than a context takes, and a clock would wait for it anyway.
        await prefetch
        if verdict.status is Status.PASS and (names := contracts_of(job, self._engine.options)):
            verdict = await self._hold_to_contracts(judge, job, verdict, names)
        if self._engine.options.sanitize:
            verdict = await self._sanitize(judge, process, job, verdict)
        timings: tuple[Timing, ...] = ()
        if verdict.status is Status.PASS and job.timed:
            verdict, timings = await self._time(judge, process, job, verdict)
        return Result(job=job, verdict=verdict, timings=timings)

    def _threads(self, job: Job) -> int:
        options = self._engine.options
        lanes = options.jobs if self._place == CPU else options.gpu_jobs
        return options.cores if job.timed else max(1, options.cores // lanes)

    async def _open_judge(self, job: Job) -> JudgeProcess:
        if self._judge is not None and self._judge.key == job.key and self._judge.alive:
            return self._judge
        await self._close_judge()
        self._judge = JudgeProcess(self._engine, job, threads=self._threads(job))
        return self._judge

    async def _close_judge(self) -> None:
        if self._judge is not None:
            await self._judge.close()
            self._judge = None

    async def _verify(self, judge: JudgeProcess, process: CandidateProcess, job: Job) -> Verdict:
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
            return _base_verdict(job, Status.ERROR, Reason.MACHINE, f"the judge was lost during {judge.stage}: {judge.end_words}")
        answer = answer or {}
        ending = await process.close(grace_s=0.0 if late else _GONE_S) if "gone" in answer or late else None
        return _verdict(job, answer, judge.stage, ending, late=late, output_tail=process.output_tail)

    async def _hold_to_contracts(self, judge: JudgeProcess, job: Job, verdict: Verdict, names: Sequence[str]) -> Verdict:
        """Ask contracts in a process of its own, and in a new one after each that is broken."""
        results: list[CheckResult] = []
        async with self._engine.beside_others(job.device):
            while len(results) < len(names):
                asked = names[len(results)]
                process = self._process(job)
                request = {"op": "contract", **load_request(job.candidate), "cases": [case.name for case in job.cases], "names": names[len(results) :]}
                timeout_s = job.settings.timeout_s
                answer, late = await judge.ask(request, [process.open_for_judge()], label=job.candidate.label, process=process, timeout_s=timeout_s)
                ending = await process.close(grace_s=0.0 if late else _GONE_S)
                if answer is None or "status" in answer:
                    return with_contracts(verdict, results, required=())
                found = [CheckResult(**{**check, "status": Status(check["status"])}) for check in answer["checks"]]
                if not found:
                    # It could not even be loaded again.
                    found = [CheckResult(name=contract(asked), status=Status.FAIL, detail=str(answer.get("detail", "")))]
                if found[-1].detail in ("", _ENDED) and found[-1].status is Status.FAIL:
                    why = f"no answer in {timeout_s:g} s" if late else _why_gone(ending, judge.stage)[1]
                    found[-1] = dataclasses.replace(found[-1], detail=why)
                results += found
        return with_contracts(verdict, results, required=names if self._engine.options.strict else job.settings.contract)

    async def _sanitize(self, judge: JudgeProcess, process: CandidateProcess, job: Job, verdict: Verdict) -> Verdict:
        """Have compute-sanitizer look at a candidate that loads, right or wrong: a fault often says why it is wrong."""
        if verdict.status not in (Status.PASS, Status.FAIL) or verdict.reason == Reason.LOAD or job.candidate.name.startswith("@"):
            return verdict
        tool = sanitize.find_tool()
        if not is_gpu(job.device):
            return with_tools(verdict, sanitize.skipped("needs CUDA: it watches kernels on a GPU"))
        if not tool:
            return with_tools(
                verdict, sanitize.skipped("compute-sanitizer not found; it is in the CUDA toolkit: put its folder on PATH, or set CUDA_HOME")
            )
        built = await self._engine.build_with_lines(job)
        if built.get("ok") is not True and built.get("stage") in ("build", "toolchain"):
            return with_tools(verdict, sanitize.skipped(f"cannot be built with line information: {built.get('message')}"))
        inputs = Scratch()
        try:
            async with self._engine.beside_others(job.device):
                answer = await judge.calls(job, inputs.path)
                if "calls" not in answer:
                    return with_tools(verdict, sanitize.skipped(f"no inputs: {answer.get('detail', judge.end_words)}"))
                self._engine.events.stage(job.candidate.label, sanitize.FAMILY)
                request = {**load_request(job.candidate), "builds": built.get("builds", {}), "device": "cuda:0", "cases": answer["calls"]}
                plan = sanitize.Plan(
                    tool=tool,
                    request=request,
                    policy={"readable": process.may_read(), "hidden": [str(path) for path in self._engine.options.hidden], "gpu": True},
                    gpu=_visible(job.device),
                    limits={"memory_bytes": self._engine.options.memory_bytes, "max_processes": _MAX_PROCESSES},
                    timeout_s=job.settings.timeout_s,
                )
                return with_tools(verdict, await sanitize.sanitize(self._engine.zygote, plan, inputs))
        finally:
            inputs.remove()

    async def _time(self, judge: JudgeProcess, process: CandidateProcess, job: Job, verdict: Verdict) -> tuple[Verdict, tuple[Timing, ...]]:
        timings: list[Timing] = []
        async with self._engine.alone(job.device):
            for case in job.timed:
                parts: list[Timing] = []
                started = time.monotonic()
                for repeat in shares(self._engine.options.repeat, self._processes(job)):
                    # The first time in the process that was verified, then in pairs of fresh ones.
                    measure = self._time_afresh if parts else functools.partial(self._time_once, process)
                    answer, failed = await measure(judge, case, job, repeat)
                    if failed is not None:
                        status, reason, detail = failed
                        return dataclasses.replace(verdict, status=status, reason=reason, detail=detail, case=case), tuple(timings)
                    parts.append(timing_from(answer["timing"]))
                    if job.settings.processes is None and (is_settled(parts) or time.monotonic() - started > _AFRESH_S):
                        break
                timings.append(pooled(parts))
            if is_gpu(job.device) and self._engine.options.examine:
                # Only now: what is examined may leave the process the slower for it.
                timings = [examined(timing, *await judge.examine(timing.case, job, process)) for timing in timings]
        return verdict, tuple(timings)

    def _processes(self, job: Job) -> int:
        """In how many pairs of processes to time at the most: where nobody says, a baseline or a number of pairs has one."""
        alone = job.candidate.name.startswith("@") or self._engine.options.repeat is not None
        return job.settings.processes or (1 if alone else MOST_PAIRS_OF_PROCESSES)

    async def _time_once(self, process: CandidateProcess, judge: JudgeProcess, case: str, job: Job, repeat: int | None) -> tuple[Message, _Failure | None]:
        answer, late = await judge.time(case, job, process, repeat=repeat)
        return answer or {}, await _timing_failure(answer, late=late, judge=judge, process=process)

    async def _time_afresh(self, judge: JudgeProcess, case: str, job: Job, repeat: int | None) -> tuple[Message, _Failure | None]:
        """Time in processes with memory of their own: where that lies moves a short kernel by percents."""
        process = self._process(job)
        try:
            answer, late = await judge.time(case, job, process, repeat=repeat, afresh=True)
            return answer or {}, await _timing_failure(answer, late=late, judge=judge, process=process)
        except BaseException:
            process.drop()
            raise
        finally:
            await process.close()


class CandidateProcess:
    """A candidate's process and the service that builds for it."""

    def __init__(
        self,
        engine: LocalEngine,
        candidate: Candidate,
        *,
        device: str,
        threads: int,
        hide_gpu: bool,
        trusted: bool = False,
        lines: bool = False,
    ) -> None:
        self._engine = engine
        self._candidate = candidate
        self._trusted = trusted or candidate.name.startswith("@")
        self._args = {
            "device": "cuda:0" if is_gpu(device) else "cpu",
            "cuda_on_cpu": device == CUDA_ON_CPU,
            "threads": threads,
            "gpu": "" if hide_gpu else _visible(device),
            "interpret": device == CUDA_ON_CPU or (candidate.language == "triton" and device == "cpu"),
            "wrap": candidate.name if candidate.name.startswith("@") else "",
            "lines": lines,
        }
        # Builders that are about to end.
        self._ends: set[asyncio.Task[Ending]] = set()
        # What the record says of each, good or not.
        self.records: list[Build] = []
        self._scratch: Scratch | None = None
        self._entries: frozenset[Path] = frozenset()
        # What was built for it, by the digest of what it asked for.
        self.built: dict[str, Message] = {}
        self._worker: Worker | None = None
        self._service: asyncio.Task[None] | None = None
        self._service_channel: ParentChannel | None = None
        self._judge_fd: int | None = None
        self._ready = asyncio.Event()

    def open(self) -> ParentChannel:
        """Start it with a channel to this process."""
        channel, fd = channel_pair()
        self._start(fd)
        return channel

    def start_for_judge(self) -> None:
        """Start it with a channel to a judge that is still to come."""
        self._judge_fd, theirs = direct_pair()
        self._start(theirs)

    def open_for_judge(self) -> int:
        """Start it unless it runs; the judge's end of its channel, which is the caller's from now on."""
        if self._judge_fd is None:
            self.start_for_judge()
        assert self._judge_fd is not None
        fd, self._judge_fd = self._judge_fd, None
        return fd

    async def ready(self) -> None:
        """Wait until it has its GPU's context and listens, or has ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_READY_S):
                await self._ready.wait()

    def _start(self, fd: int) -> None:
        self._scratch = Scratch()
        service, service_fd = channel_pair()
        self._service_channel = service
        args: dict[str, Any] = {**self._args, "limits": self._limits(self._scratch.path)}
        if not self._trusted:
            args["confine"] = self._policy(self._scratch)
        self._worker = self._engine.zygote.spawn("candidate", args, [fd, service_fd])
        self._service = asyncio.create_task(self._serve_builds(service))

    def _limits(self, scratch: Path) -> dict[str, Any]:
        """What it and all that it starts may use; the keeper removes the scratch folder, too."""
        return {
            "memory_bytes": self._engine.options.memory_bytes,
            "max_processes": _MAX_PROCESSES,
            # Elsewhere the limit of its own user holds.
            "max_tasks": _MAX_TASKS if self._args["device"] != "cpu" else None,
            "scratch": str(scratch),
        }

    def _policy(self, scratch: Scratch) -> dict[str, Any]:
        """What the candidate may touch: its own file, a folder of its own name beside it, and what was built for it."""
        self._entries = self._engine.built_for(self._candidate)
        return {
            "scratch": str(scratch.own),
            "readable": [str(path) for path in (*self._sources(), scratch.given, *self._entries)],
            "hidden": [str(path) for path in (*self._engine.options.hidden, self._engine.options.cache)],
            "gpu": self._args["device"] != "cpu",
        }

    def may_read(self) -> list[str]:
        """The candidate's own files, and what is known to be built for it."""
        return [str(path) for path in (*self._sources(), *self._engine.built_for(self._candidate))]

    def _sources(self) -> list[Path]:
        source = self._candidate.source.resolve()
        return [path for path in (source, source.with_suffix("")) if path.exists()]

    async def _serve_builds(self, service: ParentChannel) -> None:
        """Have what the candidate asks for built by a process that it cannot touch."""
        try:
            while True:
                request = await service.receive()
                if request.get("op") == "ready":
                    self._ready.set()
                    continue
                started = time.monotonic()
                built = await self._build(request)
                if built.get("ok"):
                    self.built[digest(request)] = built
                answer = self._given(built)
                if built.get("ok") and not answer.get("ok"):
                    # Somebody emptied the cache in between.
                    answer = self._given(await self._build(request))
                await service.send(answer)
                self.records.append(_build_from(request, built, wait_s=time.monotonic() - started))
        except (Closed, ProtocolError):
            pass
        finally:
            self._ready.set()
            service.close()

    async def _build(self, request: Message) -> Message:
        channel, fd = channel_pair()
        args: dict[str, Any] = {
            "cache": str(self._engine.options.cache),
            "cache_limit_bytes": self._engine.options.cache_limit_bytes,
            "jobs": 2,
            "capabilities": [gpu["capability"] for gpu in self._engine.facts["gpus"]],
            "limits": {"memory_bytes": self._engine.options.memory_bytes, "max_processes": _MAX_BUILD_PROCESSES},
        }
        if not self._trusted:
            assert self._scratch is not None
            # Compilers run on the candidate's sources and flags: they may read what it may.
            args["confine"] = {
                "readable": [str(path) for path in (*self._sources(), self._scratch.own)],
                "hidden": [str(path) for path in (*self._engine.options.hidden, self._engine.options.cache)],
            }
        builder = self._engine.zygote.spawn("builder", args, [fd])
        try:
            await channel.send(request)
            return await channel.receive()
        except (Closed, ProtocolError):
            ending = await builder.end(grace_s=_LAST_WORDS_S)
            return {"ok": False, "failure": f"the compiler's process ended: {ending.describe()}", "log": builder.output_tail}
        finally:
            channel.close()
            # Nobody waits for that: what it made is there.
            end = asyncio.create_task(builder.end())
            self._ends.add(end)
            end.add_done_callback(self._ends.discard)

    def _given(self, built: Message) -> Message:
        """Put what was built where this process may read it; the next one of the candidate may read it where it lies."""
        if not built.get("ok") or self._trusted or self._scratch is None:
            return built
        path = Path(built["path"])
        self._engine.remember_built_for(self._candidate, path.parent)
        # An entry that was built again meanwhile is not the one that this process may read.
        if path.parent in self._entries and built.get("cached"):
            return built
        try:
            return {**built, "path": str(self._scratch.give(path))}
        except OSError as error:
            return {"ok": False, "failure": f"what was built cannot be handed over: {error}", "transient": True}

    @property
    def output_tail(self) -> str:
        """The last of what it printed."""
        return self._worker.output_tail if self._worker else ""

    async def close(self, *, grace_s: float = 0.0) -> Ending:
        """End it and all that it started; within `grace_s` it may end by itself, which tells more."""
        ending = Ending()
        if self._worker is not None:
            ending = await self._worker.end(grace_s=grace_s)
        self.drop()
        if self._service is not None:
            await asyncio.wait({self._service})
        if self._ends:
            await asyncio.wait(self._ends)
        return ending

    def drop(self) -> None:
        """Forget it without waiting for its end."""
        if self._judge_fd is not None:
            os.close(self._judge_fd)
            self._judge_fd = None
        if self._service is not None:
            self._service.cancel()
        if self._service_channel is not None:
            # A task that was cancelled before it began closes nothing.
            self._service_channel.close()
        if self._scratch is not None and (self._worker is None or self._worker.is_lost):
            self._scratch.remove()


class JudgeProcess:
    """A judge, seen from the engine."""

    def __init__(self, engine: LocalEngine, job: Job, *, threads: int) -> None:
        self.key = job.key
        self.stage = "start"
        self.end_words = ""
        self._engine = engine
        self._device = job.device
        # The processes that run the reference, by what for: `time` and `examine`.
        self._references: dict[str, CandidateProcess] = {}
        self._channel, fd = channel_pair()
        opening = _opening(engine, job, threads)
        self._worker = engine.zygote.spawn("judge", {"opening": opening, "gpu": _visible(job.device)}, [fd])
        # On a GPU a time is held against the speed of light: the work is counted while others build and verify.
        self._work = asyncio.create_task(_count_work(engine, job, opening)) if job.timed and is_gpu(job.device) else None

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
            self._engine.events.stage(label, self.stage)

    async def _lost(self, words: str) -> None:
        ending = await self._worker.end(grace_s=_LAST_WORDS_S)
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
                "threads": self._engine.options.cores,
                "energy": self._engine.options.energy,
                "gpu_busy_before": self._engine.gpu_facts(job.device).get("utilisation"),
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
            self._engine,
            reference,
            device=job.device,
            threads=self._engine.options.cores,
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


def _visible(device: str) -> str:
    """The value of CUDA_VISIBLE_DEVICES under which a device is the only one: none for a CPU."""
    if not is_gpu(device):
        return ""
    index = int(device.partition(":")[2] or 0)
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return chosen.split(",")[index] if chosen else str(index)


def _reference_module(job: Job) -> str:
    return f"kbench_reference_{job.task.reference.stem}"


def load_request(candidate: Candidate) -> dict[str, str]:
    """What a worker needs to load a candidate."""
    return {
        "path": str(candidate.source),
        "module": f"kbench_candidate_{candidate.source.stem}",
        "model": "Model" if candidate.name.startswith("@") else "ModelNew",
    }


def _opening(engine: LocalEngine, job: Job, threads: int) -> dict[str, Any]:
    settings = job.settings
    return {
        "task": job.task.name,
        "reference": str(job.task.reference),
        "device": "cuda:0" if is_gpu(job.device) else "cpu",
        "cuda_on_cpu": job.device == CUDA_ON_CPU,
        "seed": engine.options.seed,
        "trials": settings.trials,
        "threads": threads,
        "beyond_inputs": settings.domain == "any",
        "strict_float32": settings.arithmetic == "float32",
        "cache": str(engine.options.cache),
        "driver": engine.facts["driver"],
        "draws": settings.draws,
        "tolerance": {
            "by_dtype": {name: [pair.atol, pair.rtol] for name, pair in settings.tolerances.items()},
            "default": [settings.atol, settings.rtol],
            "allow_nan": settings.allow_nan,
        },
        "cases": [{**dataclasses.asdict(case)} for case in job.task.cases],
    }


async def _count_work(engine: LocalEngine, job: Job, opening: Mapping[str, Any]) -> dict[str, Any]:
    """Count what each timed case has to do, in a process without a GPU; nothing where that fails."""
    channel, fd = channel_pair()
    wanted = {name: opening[name] for name in ("reference", "seed", "task")}
    cases = [case for case in opening["cases"] if case["name"] in job.timed]
    worker = engine.zygote.spawn("counter", {**wanted, "cases": cases}, [fd])
    try:
        return dict((await asyncio.wait_for(channel.receive(), _COUNT_S))["work"])
    except (Closed, ProtocolError, TimeoutError):
        return {}
    finally:
        channel.close()
        await worker.end()


def _base_verdict(job: Job, status: Status, reason: str, detail: str, **more: Any) -> Verdict:
    return Verdict(
        task=job.task.name,
        candidate=job.candidate.name,
        device=job.device,
        status=status,
        reason=reason,
        detail=detail,
        **more,
    )


def _decided_without_running(job: Job) -> Verdict | None:
    if job.task.error:
        return _base_verdict(job, Status.ERROR, Reason.REFERENCE, job.task.error)
    if job.candidate.error:
        return _base_verdict(job, Status.FAIL, Reason.LOAD, job.candidate.error)
    if job.skip and not builds(job):
        return _base_verdict(job, Status.SKIP, "", job.skip)
    return None


def _build_verdict(job: Job, build: Message) -> Verdict | None:
    """A build that failed is the candidate's fault; a load that failed there is tried again by the judge."""
    if build.get("stage") == "build":
        return _base_verdict(job, Status.FAIL, Reason.BUILD, str(build.get("message")), output_tail=str(build.get("log", "")))
    if build.get("stage") == "toolchain":
        status = Status.SKIP if job.skip else Status.ERROR
        detail = f"{job.skip}; not built: {build.get('message')}" if job.skip else f"cannot be built: {build.get('message')}"
        return _base_verdict(job, status, "" if job.skip else Reason.MACHINE, detail)
    if build.get("stage") == "unsupported":
        return _base_verdict(job, Status.SKIP, "", f"cannot run on the CPU: {build.get('message')}")
    if build.get("timeout") and job.device == CUDA_ON_CPU:
        return _slow_on_cpu(job, "build")
    if build.get("timeout"):
        return _base_verdict(job, Status.FAIL, Reason.TIMEOUT, f"no answer in {job.settings.timeout_s:g} s during build")
    if job.skip:
        built = "built all the same" if build.get("ok") else f"not built: {build.get('message', 'its process ended')}"
        return _base_verdict(job, Status.SKIP, "", f"{job.skip}; {built}")
    return None


def _slow_on_cpu(job: Job, stage: str, **more: Any) -> Verdict:
    """Where kernels run a thousand times slower than on a device, the time they take says nothing of them."""
    detail = f"not done on the CPU in {job.settings.timeout_s:g} s, during {stage}; `timeout_s` or `--timeout` allows more"
    return _base_verdict(job, Status.SKIP, "", detail, **more)


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
        detail = f"the reference took more than {job.settings.timeout_s:g} s; `timeout_s` or `--timeout` allows more"
        return _base_verdict(job, Status.ERROR, Reason.REFERENCE, detail, **more)
    if late and job.device == CUDA_ON_CPU:
        return _slow_on_cpu(job, stage, **more)
    if late:
        detail = f"no answer in {job.settings.timeout_s:g} s during {stage}"
        return _base_verdict(job, Status.FAIL, Reason.TIMEOUT, detail, **more)
    if "gone" in answer:
        assert ending is not None
        reason, detail = _why_gone(ending, str(answer["gone"]))
        status = Status.ERROR if reason == Reason.MACHINE else Status.FAIL
        return _base_verdict(job, status, reason, detail, **more)
    if "status" in answer:
        more["output_tail"] = "\n".join(filter(None, [output_tail.rstrip(), str(answer.get("log") or "")]))
        return _base_verdict(job, Status(answer["status"]), str(answer["reason"]), str(answer["detail"]), **more)
    if worst is None:
        return _base_verdict(job, Status.PASS, "", "", **more)
    where = f"case {worst.case}: " if worst.case != "default" else ""
    return _base_verdict(job, worst.status, worst.reason, where + worst.detail, case=worst.case, **more)


def contracts_of(job: Job, options: Options) -> tuple[str, ...]:
    """The contracts to ask: all where the run asks for them, else those that the task demands; none of a baseline."""
    if job.candidate.name.startswith("@"):
        return ()
    return CONTRACTS if options.contract or options.strict else job.settings.contract


def with_contracts(verdict: Verdict, results: Sequence[CheckResult], *, required: Sequence[str]) -> Verdict:
    """Add what contracts found; one that is required and broken fails the candidate, another one is told."""
    broken = [result for result in results if result.status is Status.FAIL]
    checks = (*verdict.checks, *results)
    for result in broken:
        if result.name.partition(":")[2] in required:
            return dataclasses.replace(verdict, status=Status.FAIL, reason=result.name, detail=result.detail, checks=checks)
    return dataclasses.replace(verdict, checks=checks, warnings=(*verdict.warnings, *(f"{result.name}: {result.detail}" for result in broken)))


def with_tools(verdict: Verdict, results: Sequence[CheckResult]) -> Verdict:
    """Add what compute-sanitizer's tools said; a finding fails an accepted candidate, a tool without an end is an error."""
    checks = (*verdict.checks, *results)
    words = {status: [f"{result.name}: {result.detail}" for result in results if result.status is status] for status in Status}
    skips = list(dict.fromkeys(result.detail for result in results if result.status is Status.SKIP))
    told = [*words[Status.FAIL], *words[Status.ERROR], *(f"{sanitize.FAMILY}: skip: {why}" for why in skips)]
    if verdict.status is Status.PASS:
        for status in (Status.FAIL, Status.ERROR):
            first = next((result for result in results if result.status is status), None)
            if first is not None:
                reason = contract(first.name.partition(":")[2]) if status is Status.FAIL else Reason.MACHINE
                return dataclasses.replace(verdict, status=status, reason=reason, detail="; ".join(words[status]), checks=checks)
    return dataclasses.replace(verdict, checks=checks, warnings=(*verdict.warnings, *told))


def _worst(cases: Sequence[CaseVerdict]) -> CaseVerdict | None:
    """The first case in error, else the first that failed; None where all passed."""
    for status in (Status.ERROR, Status.FAIL):
        for case in cases:
            if case.status is status:
                return case
    return None


def _why_gone(ending: Ending, stage: str) -> tuple[str, str]:
    if stage == "start":
        return Reason.MACHINE, f"the worker's process ended by {ending.describe()} {_NOT_BEGUN}"
    if ending.cause == "lost":
        return Reason.MACHINE, f"the process that watched it was killed during {stage}; is there too little memory?"
    if ending.cause == "memory":
        return Reason.MEMORY, f"used more host memory than it may during {stage}"
    if ending.cause == "processes":
        return Reason.CRASH, f"started more than {_MAX_PROCESSES} processes during {stage}"
    if ending.cause == "disk":
        return Reason.CRASH, f"filled its scratch folder during {stage}"
    if ending.cause == "flood":
        return Reason.CRASH, f"flooded its output during {stage}"
    return Reason.CRASH, f"its process ended by {ending.describe()} during {stage}"


async def _timing_failure(answer: Message | None, *, late: bool, judge: JudgeProcess, process: CandidateProcess) -> _Failure | None:
    if answer is None:
        return Status.ERROR, Reason.MACHINE, f"the judge was lost during {judge.stage}: {judge.end_words}"
    if late:
        return Status.FAIL, Reason.TIMEOUT, f"no answer in time during {judge.stage}"
    if "gone" in answer:
        reason, detail = _why_gone(await process.close(grace_s=_GONE_S), str(answer["gone"]))
        return Status.ERROR if reason == Reason.MACHINE else Status.FAIL, reason, detail
    if "status" in answer:
        return Status(answer["status"]), str(answer["reason"]), str(answer["detail"])
    return None


def _build_from(request: Message, answer: Message, *, wait_s: float) -> Build:
    """What is worth knowing of a build: the request is the candidate's, the answer a builder's."""
    return Build(
        name=str(request.get("name", ""))[:_NAME_LIMIT],
        ok=bool(answer.get("ok")),
        cached=bool(answer.get("cached")),
        headers=str(answer.get("headers", "")),
        seconds=float(answer.get("seconds", 0.0)),
        wait_s=wait_s,
        kernels=tuple(Kernel(**fields) for fields in answer.get("kernels", ())),
    )


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


def examined(timing: Timing, answer: Message | None, late: bool) -> Timing:
    """Add to a timing what its examination gave; one that came to nothing is a note, and costs nothing."""
    found = (answer or {}).get("examined")
    if found is None:
        why = "no answer in time" if late else str((answer or {}).get("detail") or "a process ended")
        return dataclasses.replace(timing, notes=(*timing.notes, f"graph and kernels not measured: {why}"))
    return dataclasses.replace(
        timing,
        extra={**timing.extra, **found["extra"], **_costs(timing.extra, found["cost"])},
        flags=tuple(sorted({*timing.flags, *found["flags"]})),
        notes=(*timing.notes, *found["notes"]),
        samples={**timing.samples, **found["samples"], "flags": sorted({*timing.samples["flags"], *found["flags"]})},
    )


def shares(repeat: int | None, processes: int) -> list[int | None]:
    """Share a number of pairs out between pairs of processes, as evenly as it goes; None for each where it is left open."""
    if repeat is None:
        return [None] * processes
    return [repeat // count + (index < repeat % count) for count in [min(repeat, processes)] for index in range(count)]


def is_settled(parts: Sequence[Timing]) -> bool:
    """Say whether further pairs of processes would tell nothing that these did not."""
    return samples.is_settled(samples.joined([part.samples for part in parts]))


def pooled(parts: Sequence[Timing]) -> Timing:
    """Join what several pairs of processes measured of one case; what is no sample is as the first saw it."""
    if len(parts) == 1:
        return parts[0]
    joined = samples.joined([part.samples for part in parts])
    concluded = samples.conclude(joined)
    return dataclasses.replace(
        parts[0],
        **{
            **concluded,
            "verdict": Comparison(concluded["verdict"]),
            "flags": tuple(concluded["flags"]),
            "extra": {**parts[0].extra, **concluded["extra"], **_costs(*(part.extra for part in parts))},
        },
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        samples=joined,
    )


def _costs(*extras: Mapping[str, Any]) -> dict[str, Any]:
    """What several measurements of one case cost together: in all, of the GPU, and by stage."""
    costs: dict[str, Any] = {name: sum(extra.get(name) or 0.0 for extra in extras) for name in ("wall_s", "gpu_s")}
    stages = dict.fromkeys(stage for extra in extras for stage in extra.get("spent_s", {}))
    costs["spent_s"] = {stage: sum(extra.get("spent_s", {}).get(stage, 0.0) for extra in extras) for stage in stages}
    return {**costs, "gpu_s": costs["gpu_s"] or None}


def _spent(parts: Sequence[Timing]) -> dict[str, Any]:
    """What all of them cost."""
    return {name: sum(part.extra[name] for part in parts) for name in ("gpu_s", "wall_s") if name in parts[0].extra}


def timing_from(fields: Mapping[str, Any]) -> Timing:
    """Read a timing from the judge's answer."""
    return Timing(**{**fields, "verdict": Comparison(fields["verdict"]), "flags": tuple(fields["flags"]), "notes": tuple(fields["notes"])})
