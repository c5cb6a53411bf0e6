"""The main job: discover, make jobs, run them, store what they give."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import importlib.util
import math
import os
import platform
import secrets
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kbench import __version__, discovery, identity, samples
from kbench.config import RunRequest, TaskSettings, cache_folder, cache_limit_bytes, warm_seconds
from kbench.discovery import Selection
from kbench.engines.job import Events, Job, Options, Result
from kbench.engines.local import LocalEngine
from kbench.errors import NothingSelectedError, UsageError
from kbench.outcome import Outcome
from kbench.progress import Reporter
from kbench.records import CUDA_ON_CPU, Candidate, Case, Environment, Status, Task, Timing, TimingRow, VerdictRow, is_gpu
from kbench.reports import REPORTS
from kbench.store import Store

# What a timing may hold besides, by the names of columns.
_MEASURED = {column.name for column in dataclasses.fields(TimingRow)} - {column.name for column in dataclasses.fields(Timing)}
# Columns that follow from raw samples.
_FOLLOWING = frozenset(
    ["verdict", "pairs", "reference_s", "candidate_s", "speedup", "speedup_low", "speedup_high"]
    + [f"{side}_{what}" for side in ("reference", "candidate") for what in ("wall_s", "hot_s", "graph_s", "stream_s")]
)
# Of what a candidate printed a row keeps the last lines; the JSON object has more.
_OUTPUT_CHARACTERS = 500
# Baselines that only a GPU has.
_CUDA_BASELINES = frozenset({"@cudagraph"})


def verify(request: RunRequest, reporter: Reporter) -> Outcome:
    """Verify what is selected; every verdict is stored and reported as it comes."""
    return _run(request, reporter, timed=False)


def time(request: RunRequest, reporter: Reporter) -> Outcome:
    """Verify what is selected, and time what was accepted."""
    return _run(request, reporter, timed=True)


def report(request: RunRequest, *, all_rows: bool = False, recompute: bool = False) -> str:
    """Turn the stored rows into a page of markdown; with `recompute`, what follows from raw samples is worked out again."""
    store = Store(_root(request) / "results")
    timings, timing_problems = store.read_timings(newest=not all_rows)
    verdicts, verdict_problems = store.read_verdicts(newest=not all_rows)
    remarks = None
    if recompute:
        timings, remarks = recomputed(timings, store)
    return REPORTS["markdown"](timings, verdicts, [*timing_problems, *verdict_problems], all_rows=all_rows, recomputed=remarks)


def recomputed(rows: Sequence[TimingRow], store: Store) -> tuple[list[TimingRow], list[str]]:
    """Work out again what follows from raw samples; the rows as they are now, and a remark for each that differs or cannot be."""
    found: list[TimingRow] = []
    remarks: list[str] = []
    run_id, kept = "", dict[str, Any]()
    for row in rows:
        if row.status != Status.PASS:
            found.append(row)
            continue
        if row.run_id != run_id:
            run_id, kept = row.run_id, store.read_samples(row.run_id)
        now, remark = _recomputed_row(row, kept.get(f"{row.task}/{row.candidate}/{row.case}"))
        found.append(now)
        if remark:
            remarks.append(f"{row.task}/{row.candidate}/{row.case} of {row.run_id}: {remark}")
    return found, remarks


def _recomputed_row(row: TimingRow, kept: Any) -> tuple[TimingRow, str]:
    if not isinstance(kept, dict):
        return row, "no samples; shown as stored"
    try:
        concluded = samples.conclude(kept)
    except ValueError as error:
        return row, f"{error}; shown as stored"
    values = {name: value for name, value in {**concluded, **concluded["extra"]}.items() if name in _FOLLOWING and value is not None}
    values["flags"] = " ".join(concluded["flags"])
    changed = [f"{name} {getattr(row, name)} → {value}" for name, value in values.items() if not _agree(getattr(row, name), value)]
    return dataclasses.replace(row, **values), ", ".join(changed)


def _agree(stored: object, value: object) -> bool:
    if isinstance(stored, float) and isinstance(value, float):
        # A logarithm may differ in its last digits from one machine to another.
        return math.isclose(stored, value, rel_tol=1e-9)
    return stored == value


def _run(request: RunRequest, reporter: Reporter, *, timed: bool) -> Outcome:
    selection = _select(request)
    store = Store(request.root / "results") if request.root is not None else None
    if store is not None:
        store.check_writable()
    session = _Session(request, reporter, store, timed=timed)
    try:
        asyncio.run(session.run(selection))
    except (KeyboardInterrupt, asyncio.CancelledError):
        session.interrupted = True
    finally:
        reporter.finished()
    return session.outcome()


def _select(request: RunRequest) -> Selection:
    if request.pair is not None:
        return discovery.discover_pair(*request.pair)
    root = _root(request)
    request.config.require_known_tasks(path.stem for path in (root / "references").glob("*.py"))
    return discovery.discover(root, request.selectors)


def _root(request: RunRequest) -> Path:
    if request.root is None:
        raise UsageError("no tree", hint="`--root DIR` names one")
    return request.root


class _Session(Events):
    """One run: what it was asked for, and what it has found so far."""

    def __init__(self, request: RunRequest, reporter: Reporter, store: Store | None, *, timed: bool) -> None:
        now = datetime.datetime.now(datetime.UTC)
        self._request = request
        self._reporter = reporter
        self._store = store
        self._timed = timed
        self._started_at = now.isoformat(timespec="seconds")
        self._run_id = f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
        self._seed = request.seed if request.seed is not None else secrets.randbits(62)
        self._counts: Counter[Status] = Counter()
        self._engine: LocalEngine | None = None
        self._commit = _commit(request.root)
        self.interrupted = False

    def outcome(self) -> Outcome:
        """What the run came to."""
        return Outcome(
            passed=self._counts[Status.PASS],
            failed=self._counts[Status.FAIL],
            errors=self._counts[Status.ERROR],
            skipped=self._counts[Status.SKIP],
            interrupted=self.interrupted,
            strict=self._request.strict,
        )

    async def run(self, selection: Selection) -> None:
        """Run the selection; an interrupt cancels it, and every process is ended before it returns."""
        options = Options(
            jobs=self._request.jobs or max(1, len(os.sched_getaffinity(0)) if not self._timed else 1),
            # A GPU's memory is one candidate's at a time, unless it is asked otherwise.
            gpu_jobs=self._request.jobs or 1,
            seed=self._seed,
            cache=cache_folder(),
            cache_limit_bytes=cache_limit_bytes(),
            repeat=self._request.repeat,
            energy=self._request.energy,
            hidden=_hidden(self._request),
            sandbox=self._request.sandbox,
            contract=self._request.contract,
            strict=self._request.strict,
            sanitize=self._request.sanitize,
            fail_fast=self._request.fail_fast,
            warm_s=warm_seconds() if self._request.warm else 0.0,
        )
        engine = self._engine = LocalEngine(options, self)
        with _cancelled_by_signals():
            try:
                await engine.start()
                jobs = self._without_judged(self._jobs(selection, engine))
                self._reporter.started(sum(not job.candidate.name.startswith("@") for job in jobs))
                await engine.run(jobs)
            finally:
                await engine.close()

    def stage(self, label: str, stage: str) -> None:
        """See `Events`."""
        self._reporter.stage(label, stage)

    def note(self, text: str) -> None:
        """See `Events`."""
        self._reporter.note(text)

    def result(self, result: Result) -> None:
        """Store first, tell then."""
        job = result.job
        if self._timed and not job.timed and result.verdict.status is Status.PASS:
            warnings = (*result.verdict.warnings, f"not timed: {_why_not_timed(job)}")
            result = dataclasses.replace(result, verdict=dataclasses.replace(result.verdict, warnings=warnings))
        verdict = result.verdict
        baseline = job.candidate.name.startswith("@")
        environment = self._environment(job)
        if self._store is not None:
            for row in self._timing_rows(result, environment) if self._timed else ():
                self._store.append_timing(row)
            for timing in result.timings:
                self._store.save_samples(self._run_id, f"{job.candidate.label}/{timing.case}", timing.samples)
            if not baseline:
                # Last: who resumes this run takes it that nothing is missing.
                self._store.append_verdict(self._verdict_row(result, environment))
        if baseline:
            if verdict.status is not Status.PASS:
                self._reporter.warning(f"baseline {job.candidate.label}: {verdict.reason}: {verdict.detail}")
            return
        self._counts[verdict.status] += 1
        if self._timed:
            self._reporter.timing(verdict, result.timings)
        else:
            self._reporter.verdict(verdict)

    def _without_judged(self, jobs: list[Job]) -> list[Job]:
        """Leave out what passed or failed before under the same identity, and baselines that nobody is left for."""
        if not self._request.resume or self._store is None:
            return jobs
        judged = self._store.judged()
        left = []
        for job in jobs:
            status = "" if job.candidate.name.startswith("@") else judged.get(self._identity(job), "")
            if status in (Status.PASS, Status.FAIL):
                self._counts[Status(status)] += 1
            else:
                left.append(job)
        if known := len(jobs) - len(left):
            self._reporter.note(f"{known} of {sum(not job.candidate.name.startswith('@') for job in jobs)} candidates have a verdict already")
        wanted = {job.key for job in left if not job.candidate.name.startswith("@")}
        return [job for job in left if job.key in wanted]

    def _identity(self, job: Job) -> str:
        """Name the verdict on a job, see `identity`; where it runs on one GPU of several alike, their kind counts."""
        assert self._engine is not None
        request = self._request
        asked = {
            "settings": job.settings.sha256,
            "device": job.device.partition(":")[0],
            "skip": job.skip,
            "cases": [case.name for case in job.cases],
            "timed": job.timed,
            "repeat": request.repeat if self._timed else None,
            "energy": self._timed and request.energy,
            "cores": self._engine.machine.options.cores if self._timed else None,
            "seed": request.seed,
            "sandbox": self._engine.machine.facts["sandbox"],
            "contract": request.contract or request.strict,
            "strict": request.strict,
            "sanitize": request.sanitize,
        }
        return identity.identity(job.task, job.candidate, asked=asked, environment=self._environment(job))

    def _environment(self, job: Job) -> Environment:
        assert self._engine is not None
        device = job.device if self._engine.machine.facts["gpus"] else "cpu"
        return dataclasses.replace(self._engine.machine.environment(device), kbench_version=__version__, commit=self._commit, host=platform.node())

    # From a selection to jobs.

    def _jobs(self, selection: Selection, engine: LocalEngine) -> list[Job]:
        tasks = {task.name: task for task in selection.tasks}
        self._check_cases(tasks.values())
        jobs: list[Job] = []
        have: set[tuple[str, str]] = set()
        for candidate in selection.candidates:
            task = tasks[candidate.task]
            device, skip = _device(self._request.device, candidate, engine.machine.facts)
            if self._timed and not skip and device != CUDA_ON_CPU and (task.name, device) not in have and self._request.pair is None:
                have.add((task.name, device))
                jobs += self._baseline_jobs(task, device)
            jobs.append(self._job(task, candidate, device, skip))
        if not jobs:
            raise NothingSelectedError("nothing is selected", hint="`kbench list` shows what there is")
        return jobs

    def _job(self, task: Task, candidate: Candidate, device: str, skip: str) -> Job:
        settings = self._settings(task)
        cases = self._cases_on(task, device)
        if not cases and not skip:
            skip = f"no case of `{task.name}` runs on {device}"
        # A case that is named is timed, whatever it says of itself; an interpreted kernel never is.
        timed = tuple(case.name for case in cases if (case.timed or self._request.cases) and not _is_interpreted(candidate, device))
        return Job(
            task=task,
            candidate=candidate,
            device=device,
            settings=settings,
            cases=cases,
            timed=timed if self._timed else (),
            skip=skip,
            movable=not skip and is_gpu(device) and self._request.device in ("auto", "cuda"),
        )

    def _baseline_jobs(self, task: Task, device: str) -> Iterable[Job]:
        for name in self._settings(task).baselines:
            if name in _CUDA_BASELINES and not is_gpu(device):
                continue
            baseline = Candidate(task=task.name, name=name, source=task.reference, sha256=task.sha256)
            job = self._job(task, baseline, device, "")
            if not job.timed:
                continue
            # A baseline is the reference itself: only the cases that are timed matter.
            yield dataclasses.replace(job, cases=tuple(case for case in job.cases if case.name in job.timed))

    def _settings(self, task: Task) -> TaskSettings:
        return self._request.config.settings_for(task.name, self._request.overrides)

    def _cases_on(self, task: Task, device: str) -> tuple[Case, ...]:
        kind = "cuda" if is_gpu(device) else "cpu"
        wanted = self._request.cases
        return tuple(case for case in task.cases if (case.name in wanted if wanted else kind in case.devices))

    def _check_cases(self, tasks: Iterable[Task]) -> None:
        known = {case.name for task in tasks for case in task.cases}
        for name in self._request.cases:
            if name not in known:
                raise UsageError(f"no case `{name}`", hint=f"there are: {', '.join(sorted(known))}")

    # From results to rows.

    def _verdict_row(self, result: Result, environment: Environment) -> VerdictRow:
        job, verdict = result.job, result.verdict
        return VerdictRow(
            run_id=self._run_id,
            started_at=self._started_at,
            task=verdict.task,
            candidate=verdict.candidate,
            status=verdict.status,
            reason=verdict.reason,
            detail=verdict.detail,
            case=verdict.case,
            cases_passed=sum(case.status is Status.PASS for case in verdict.cases),
            cases_total=len(job.cases),
            device=verdict.device,
            trials=verdict.trials,
            seed=self._seed,
            max_abs_error=verdict.max_abs_error,
            max_rel_error=verdict.max_rel_error,
            build_s=verdict.build_s,
            seconds=verdict.seconds,
            warnings="; ".join(verdict.warnings),
            candidate_sha256=job.candidate.sha256,
            reference_sha256=job.task.sha256,
            settings_sha256=job.settings.sha256,
            sandbox=verdict.sandbox,
            identity=self._identity(job),
            output="" if verdict.status is Status.PASS else verdict.output_tail.rstrip()[-_OUTPUT_CHARACTERS:],
            **_columns(environment),
        )

    def _timing_rows(self, result: Result, environment: Environment) -> Iterable[TimingRow]:
        job, verdict = result.job, result.verdict
        common: dict[str, Any] = {
            "run_id": self._run_id,
            "started_at": self._started_at,
            "task": verdict.task,
            "candidate": verdict.candidate,
            "status": verdict.status,
            "device": verdict.device,
            "repeat": self._request.repeat,
            "seed": self._seed,
            "candidate_sha256": job.candidate.sha256,
            "reference_sha256": job.task.sha256,
            **_columns(environment),
        }
        if verdict.status is not Status.PASS:
            yield TimingRow(case=verdict.case, reason=verdict.reason, detail=verdict.detail, **common)
            return
        for timing in result.timings:
            measured: dict[str, Any] = {name: value for name, value in timing.extra.items() if name in _MEASURED and value is not None}
            yield TimingRow(
                case=timing.case,
                verdict=timing.verdict,
                timer=timing.timer,
                pairs=timing.pairs,
                reference_s=timing.reference_s,
                candidate_s=timing.candidate_s,
                speedup=timing.speedup,
                speedup_low=timing.speedup_low,
                speedup_high=timing.speedup_high,
                reference_wall_s=timing.reference_wall_s,
                candidate_wall_s=timing.candidate_wall_s,
                flags=" ".join(timing.flags),
                notes="; ".join(timing.notes),
                **measured,
                **common,
            )


def _columns(environment: Environment) -> dict[str, str]:
    return dataclasses.asdict(environment)


def _device(wanted: str, candidate: Candidate, facts: dict[str, object]) -> tuple[str, str]:
    """Where a candidate is to run, and why it cannot, if so."""
    gpus = facts["gpus"]
    assert isinstance(gpus, list)
    kind, _, index = wanted.partition(":")
    if kind == "cuda":
        if "cuda" not in candidate.devices:
            return wanted, "runs on the CPU only"
        if int(index or 0) >= len(gpus):
            return wanted, f"needs {wanted}: {_why_no_gpu(facts)}"
        return f"cuda:{index or 0}", ""
    if kind == "auto" and "cuda" in candidate.devices and gpus:
        return "cuda:0", ""
    if "cpu" in candidate.devices or (candidate.language == "triton" and _has_triton()):
        return "cpu", ""
    if CUDA_ON_CPU in candidate.runs_on and discovery.has_cuda_parser():
        return CUDA_ON_CPU, ""
    return "cuda", "needs CUDA: " + ("asked for the CPU" if kind == "cpu" else _why_no_gpu(facts))


def _is_interpreted(candidate: Candidate, device: str) -> bool:
    """Whether its outputs are the kernel's, but its time is not."""
    return device == CUDA_ON_CPU or (candidate.language == "triton" and device == "cpu")


def _why_not_timed(job: Job) -> str:
    if _is_interpreted(job.candidate, job.device):
        return "an interpreted kernel has no speed"
    return f'no case here is to be timed (`"timed": False` in CASES); `--case {job.cases[0].name}` times it all the same'


def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def _why_no_gpu(facts: dict[str, object]) -> str:
    if not facts["cuda"]:
        return "this torch is a CPU build"
    count = len(facts["gpus"]) if isinstance(facts["gpus"], list) else 0
    return f"this machine has {count} GPUs" if count else "this machine has no GPU"


def _hidden(request: RunRequest) -> tuple[Path, ...]:
    """What no candidate may read wherever it lies: the project, and the reference of a pair outside of it."""
    reference = (request.pair[0].resolve(),) if request.pair is not None else ()
    return (*((request.root.resolve(),) if request.root is not None else ()), *reference)


def _commit(root: Path | None) -> str:
    """The commit of the tree that the candidates are in, empty where there is none."""
    if root is None:
        return ""
    try:
        found = subprocess.run(  # noqa: S603
            ["git", "-C", str(root), "rev-parse", "HEAD"],  # noqa: S607 - the user's own git
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""


@contextlib.contextmanager
def _cancelled_by_signals() -> Iterator[None]:
    """Turn SIGINT and SIGTERM into the cancelling of the running task."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    numbers: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM)
    cancel: Callable[[], object] = task.cancel
    for number in numbers:
        loop.add_signal_handler(number, cancel)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
