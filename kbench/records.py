"""The facts that travel through kbench, as frozen dataclasses of the standard library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

SCHEMA = 1
# The device of a CUDA candidate where there is no GPU: its kernels run, watched, on the CPU, and are never timed.
CUDA_ON_CPU = "cuda-on-cpu"


def is_gpu(device: str) -> bool:
    """Whether the device of a job or a record is a GPU: `cuda` or `cuda:N`."""
    return device.partition(":")[0] == "cuda"


class Status(StrEnum):
    """How a candidate, a case or a check ended."""

    PASS = "pass"
    FAIL = "fail"
    ERROR = "error"
    SKIP = "skip"


class Reason(StrEnum):
    """Why a candidate did not pass: the check or the stage that says so.

    `EXPLOIT`, `CONTRACT` and `CUDA` are families: their text in a record is `exploit:<name>`,
    `contract:<name>` (made by `exploit()` and `contract()`) and `cuda:<name>`, a kernel's fault where it is watched.
    """

    BUILD = "build"
    LOAD = "load"
    WEIGHTS = "weights"
    RUN = "run"
    TIMEOUT = "timeout"
    CRASH = "crash"
    MEMORY = "memory"
    STRUCTURE = "structure"
    SHAPE = "shape"
    DTYPE = "dtype"
    VALUES = "values"
    NAN = "nan"
    MUTATION = "mutation"
    STATE = "state"
    DRAWS = "draws"
    DETERMINISM = "determinism"
    EXPLOIT = "exploit"
    CONTRACT = "contract"
    CUDA = "cuda"
    REFERENCE = "reference"
    MACHINE = "machine"


def exploit(name: str) -> str:
    """Name a gaming mechanism as a reason."""
    return f"{Reason.EXPLOIT}:{name}"


def contract(name: str) -> str:
    """Name a broken contract as a reason."""
    return f"{Reason.CONTRACT}:{name}"


class Comparison(StrEnum):
    """What the clock says of candidate against reference; see stats.verdict."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    UNRESOLVED = "unresolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One set of constructor arguments and inputs of a task.

    `init` and `inputs` are keyword arguments for `get_init_inputs` and `get_inputs`.
    `devices` are the device types that run it by default; `timed` ones are timed by default.
    """

    name: str = "default"
    init: Mapping[str, object] = field(default_factory=dict)
    inputs: Mapping[str, object] = field(default_factory=dict)
    devices: tuple[str, ...] = ("cpu", "cuda")
    timed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A reference file and its named cases; `error` says why the file cannot be used, if so."""

    name: str
    reference: Path
    cases: tuple[Case, ...] = (Case(),)
    sha256: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A candidate file and what its source says of itself; nothing of it has run.

    `language` is one of `cuda`, `cpp`, `triton`, `torch`. `devices` are the device types it can
    run on. `error` says why the file cannot be used (`reason` is then `load`), if so.
    """

    task: str
    name: str
    source: Path
    language: str = "torch"
    devices: tuple[str, ...] = ("cpu", "cuda")
    sha256: str = ""
    error: str = ""

    @property
    def runs_on(self) -> tuple[str, ...]:
        """The devices, and `cuda-on-cpu` where CUDA C++ has no other way to run without a GPU."""
        return self.devices if self.language != "cuda" or "cpu" in self.devices else (*self.devices, CUDA_ON_CPU)

    @property
    def label(self) -> str:
        """The selector that names this candidate."""
        return f"{self.task}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What one check found; `detail` is empty where there is nothing to say."""

    name: str
    status: Status
    detail: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseVerdict:
    """What the judge found for one case of one candidate."""

    case: str
    status: Status
    reason: str = ""
    detail: str = ""
    checks: tuple[CheckResult, ...] = ()
    warnings: tuple[str, ...] = ()
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    trials: int = 0
    seconds: float = 0.0
    accuracy: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """What one kernel of an extension takes on the device, as the assembler said; see `cuobjdump --dump-resource-usage`."""

    name: str
    architecture: str = ""
    registers: int = 0
    shared_bytes: int = 0
    stack_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One extension that a candidate asked for.

    `seconds` is what building it took when it was built, `wait_s` what the candidate waited in this
    run, where it may have been `cached`. `headers` is `light` or `full`.
    """

    name: str
    ok: bool
    cached: bool = False
    headers: str = ""
    seconds: float = 0.0
    wait_s: float = 0.0
    kernels: tuple[Kernel, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict on one candidate: the worst of its cases, named in `case` where it is not a pass."""

    task: str
    candidate: str
    device: str
    status: Status
    reason: str = ""
    detail: str = ""
    case: str = ""
    checks: tuple[CheckResult, ...] = ()
    warnings: tuple[str, ...] = ()
    cases: tuple[CaseVerdict, ...] = ()
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    seed: int = 0
    trials: int = 0
    build_s: float = 0.0
    builds: tuple[Build, ...] = ()
    seconds: float = 0.0
    output_tail: str = ""
    sandbox: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where a result was measured; empty where unknown."""

    gpu: str = ""
    driver: str = ""
    cuda: str = ""
    torch: str = ""
    python: str = ""
    host: str = ""
    cpu: str = ""
    kbench_version: str = ""
    commit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The clock's answer for one case of an accepted candidate (seconds are medians).

    `speedup` is reference time over candidate time; `speedup_low` and `speedup_high` bound it.
    `timer` names the clock: `cuda_events_cold` or `cpu_monotonic`. `extra` holds what was measured
    besides; what is named like a column of `TimingRow` goes there. `notes` say what could not be
    measured, and why. `samples` holds everything that was measured, for results/samples/.
    """

    case: str
    verdict: Comparison
    timer: str
    pairs: int
    reference_s: float
    candidate_s: float
    speedup: float
    speedup_low: float
    speedup_high: float
    reference_wall_s: float | None = None
    candidate_wall_s: float | None = None
    flags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    samples: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingRow:
    """One row of timings.csv: the fields are the columns, in order; new ones go last."""

    run_id: str
    started_at: str
    task: str
    case: str
    candidate: str
    status: str
    verdict: str = ""
    timer: str = ""
    device: str = ""
    repeat: int | None = None
    pairs: int | None = None
    reference_s: float | None = None
    candidate_s: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    reference_wall_s: float | None = None
    candidate_wall_s: float | None = None
    flags: str = ""
    seed: int | None = None
    candidate_sha256: str = ""
    reference_sha256: str = ""
    gpu: str = ""
    driver: str = ""
    cuda: str = ""
    torch: str = ""
    python: str = ""
    host: str = ""
    kbench_version: str = ""
    commit: str = ""
    reason: str = ""
    detail: str = ""
    cpu: str = ""
    # Each measurement has a name of its own: see README, "What the clock says".
    reference_hot_s: float | None = None
    candidate_hot_s: float | None = None
    reference_graph_s: float | None = None
    candidate_graph_s: float | None = None
    reference_stream_s: float | None = None
    candidate_stream_s: float | None = None
    reference_enqueue_s: float | None = None
    candidate_enqueue_s: float | None = None
    floor_s: float | None = None
    reference_kernels: int | None = None
    candidate_kernels: int | None = None
    reference_busy_s: float | None = None
    candidate_busy_s: float | None = None
    reference_memory_bytes: int | None = None
    candidate_memory_bytes: int | None = None
    reference_energy_j: float | None = None
    candidate_energy_j: float | None = None
    sol_s: float | None = None
    sol_bound: str = ""
    sm_clock_hz: float | None = None
    mem_clock_hz: float | None = None
    temperature_c: float | None = None
    throttle: str = ""
    gpu_users: int | None = None
    gpu_busy_before: float | None = None
    gpu_s: float | None = None
    wall_s: float | None = None
    notes: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRow:
    """One row of verdicts.csv: one candidate of one run; the fields are the columns, in order.

    `identity` names all that the verdict depends on, see kbench/identity.py; `output` is the end of what the
    candidate printed, where it did not pass.
    """

    run_id: str
    started_at: str
    task: str
    candidate: str
    status: str
    reason: str = ""
    detail: str = ""
    case: str = ""
    cases_passed: int | None = None
    cases_total: int | None = None
    device: str = ""
    trials: int | None = None
    seed: int | None = None
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    build_s: float | None = None
    seconds: float | None = None
    warnings: str = ""
    candidate_sha256: str = ""
    reference_sha256: str = ""
    settings_sha256: str = ""
    gpu: str = ""
    driver: str = ""
    cuda: str = ""
    torch: str = ""
    python: str = ""
    host: str = ""
    cpu: str = ""
    kbench_version: str = ""
    commit: str = ""
    sandbox: str = ""
    identity: str = ""
    output: str = ""
