"""What an engine is asked, how it is to run, and what it tells."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from kbench.config import TaskSettings
from kbench.records import Candidate, Case, Task, Timing, Verdict

# Host memory of a candidate's process tree; a share of the machine, so that the judge survives it.
_MEMORY_SHARE = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One candidate to judge on one device (`cpu` or `cuda:N`); `timed` names the cases to time.

    A `movable` one may run on any GPU that is like its own.
    """

    task: Task
    candidate: Candidate
    device: str
    settings: TaskSettings
    cases: tuple[Case, ...]
    timed: tuple[str, ...] = ()
    skip: str = ""
    movable: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """Jobs of one key share a judge."""
        return (self.task.name, self.device)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of a job."""

    job: Job
    verdict: Verdict
    timings: tuple[Timing, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to run: `jobs` lanes on the CPU and `gpu_jobs` on each GPU, the root seed, the build cache and its size, the sandbox's mode.

    `contract` asks every contract of an accepted candidate, `strict` fails it for one that is broken.
    Without `examine`, a GPU is asked for nothing but the times that a verdict rests on.
    `hidden` is what no candidate may read, `memory_bytes` what a candidate and all that it starts may use;
    `warm_s` is how long a process with torch imported may wait for the next command.
    """

    jobs: int
    seed: int
    cache: Path
    cache_limit_bytes: int = 10 * 10**9
    gpu_jobs: int = 1
    repeat: int | None = None
    energy: bool = False
    examine: bool = True
    contract: bool = False
    strict: bool = False
    sanitize: bool = False
    hidden: tuple[Path, ...] = ()
    sandbox: str = "auto"
    fail_fast: bool = False
    warm_s: float = 0.0
    cores: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    memory_bytes: int = field(default_factory=lambda: int(_MEMORY_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))


class Events:
    """What the engine tells while it works; the methods do nothing here."""

    def stage(self, label: str, stage: str) -> None:
        """A job has come to a stage."""

    def result(self, result: Result) -> None:
        """A job is done."""

    def note(self, text: str) -> None:
        """Something is worth knowing."""


def builds(job: Job) -> bool:
    """Whether a job's candidate may build extensions."""
    return job.candidate.language in ("cuda", "cpp") and not job.candidate.error
