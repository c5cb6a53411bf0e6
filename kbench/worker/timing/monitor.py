"""What else went on at the GPU while it was timed, by NVML: clocks, what slowed it, who else used it.

The judge asks, between blocks of pairs and never inside one; nothing here changes a setting of the
card. pynvml (`nvidia-ml-py`) is optional: without it the record says so, and has empty fields.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbench import stats

# The bits of the clocks' event reasons that hold a GPU down (nvml.h, nvmlClocksEventReason*), each with the
# field whose counter says for how many nanoseconds it did (nvml.h, NVML_FI_DEV_*; None: there is no counter).
_REASONS: dict[str, tuple[int, int | None]] = {
    "clocks_set": (0x02, None),
    "power_cap": (0x04, 74),
    "hw_slowdown": (0x08, None),
    "sync_boost": (0x10, 76),
    "sw_thermal": (0x20, 269),
    "hw_thermal": (0x40, 270),
    "power_brake": (0x80, 271),
}
# Clocks that somebody set are steady ones; the record says so, and that is all.
_HARMLESS = frozenset({"power_cap", "clocks_set"})
# The power cap is normal for large matrix products, and only worth a word from this share of the time on.
_POWER_CAPPED_SHARE = 0.05
# A clock that moved by more than this within a run.
_CLOCK_SPREAD = 0.03
# More use than this before anything of ours ran is somebody else's.
_BUSY_BEFORE = 0.1
# The energy counter steps every 100 ms on an H200, and one reading takes 2.4 ms.
_ENERGY_POLL_S = 0.01
_ENERGY_STEPS = 8


@dataclass(slots=True, kw_only=True)
class Observation:
    """What was seen: `fields` by the names of columns, `flags`, and `notes` on what could not be seen."""

    fields: dict[str, Any] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Monitor:
    """Watches one GPU, named by its UUID, from `begin` to `finish`; `sample` is cheap (20 us).

    `nvml` is the module pynvml or None where it is missing, `is_ours` says of a process id whether the
    process is kbench's own (None: it cannot be told).
    """

    def __init__(self, uuid: str, nvml: Any, is_ours: Callable[[int], bool | None]) -> None:
        self._nvml = nvml
        self._is_ours = is_ours
        self._handle: Any = None
        self._note = ""
        self._clocks: dict[str, list[float]] = {"sm": [], "mem": []}
        self._reasons = 0
        self._counters: dict[str, int] = {}
        self._began_s = 0.0
        self._began_us = 0
        if nvml is None:
            self._note = "clocks and users of the GPU unknown: pynvml is not installed (pip install nvidia-ml-py)"
            return
        try:
            nvml.nvmlInit()
            self._handle = nvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}")
        except nvml.NVMLError as error:
            self._note = f"clocks and users of the GPU unknown: NVML: {error}"

    def begin(self) -> None:
        """Start to watch."""
        self._clocks = {"sm": [], "mem": []}
        self._reasons = 0
        self._began_s = time.monotonic()
        self._began_us = time.time_ns() // 1000
        self._counters = self._read_counters()
        self.sample()

    def sample(self) -> None:
        """Look at the clocks once."""
        nvml = self._nvml
        for name in self._clocks:
            kind = getattr(nvml, f"NVML_CLOCK_{name.upper()}", None)
            mhz = self._ask(lambda kind=kind: nvml.nvmlDeviceGetClockInfo(self._handle, kind))  # type: ignore[misc]
            if mhz is not None:
                self._clocks[name].append(mhz * 1e6)
        self._reasons |= self._ask(self._current_reasons) or 0

    def finish(self) -> Observation:
        """Look a last time, and say what was seen since `begin`."""
        seen = Observation(notes=[self._note] if self._note else [])
        if self._handle is None:
            return seen
        self.sample()
        self._see_clocks(seen)
        self._see_throttling(seen)
        self._see_users(seen)
        nvml = self._nvml
        seen.fields["temperature_c"] = self._ask(lambda: nvml.nvmlDeviceGetTemperature(self._handle, nvml.NVML_TEMPERATURE_GPU))
        return seen

    def energy_meter(self) -> EnergyMeter | None:
        """A meter of this GPU, or None where it has no energy counter."""
        if self._ask(self._energy_mj) is None:
            return None
        return EnergyMeter(self._energy_mj)

    def _see_clocks(self, seen: Observation) -> None:
        for name, values in self._clocks.items():
            if values:
                seen.fields[f"{name}_clock_hz"] = stats.median(values)
        speeds = self._clocks["sm"]
        if speeds and max(speeds) - min(speeds) > _CLOCK_SPREAD * max(speeds):
            seen.flags.append("unsteady_clock")

    def _see_throttling(self, seen: Observation) -> None:
        elapsed_ns = max((time.monotonic() - self._began_s) * 1e9, 1.0)
        now = self._read_counters()
        shares = {name: min(1.0, max(0.0, (now[name] - self._counters[name]) / elapsed_ns)) for name in now if name in self._counters}
        bits = {name: bool(self._reasons & bit) for name, (bit, _) in _REASONS.items()}
        # A counter cannot miss what happened between two looks; where there is none, a look must do.
        slowed = {name: shares.get(name, 1.0 if bits[name] else 0.0) for name in _REASONS}
        seen.fields["throttle"] = " ".join(f"{name}:{share:.3f}" for name, share in slowed.items() if share)
        if any(share for name, share in slowed.items() if name not in _HARMLESS):
            seen.flags.append("throttled")
        if slowed["power_cap"] > _POWER_CAPPED_SHARE:
            seen.flags.append("power_capped")

    def _see_users(self, seen: Observation) -> None:
        nvml = self._nvml
        running = self._ask(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(self._handle))
        pids = None if running is None else {process.pid for process in running}
        # Where we do not find ourselves, ids are those of another namespace, and say nothing.
        if pids is None or os.getpid() not in pids:
            seen.notes.append("other users of the GPU unknown: NVML names no process of ours")
            return
        others = {pid for pid in pids if self._is_ours(pid) is False}
        seen.fields["gpu_users"] = len(others)
        samples = self._ask(self._utilisation_samples)
        busy = {sample.pid for sample in samples or () if sample.smUtil and self._is_ours(sample.pid) is False}
        # Without samples nobody can tell an idle neighbour from a busy one.
        if busy or (samples is None and others):
            seen.flags.append("gpu_shared")

    def _utilisation_samples(self) -> list[Any]:
        """Who used the GPU since `begin`, sampled by the driver every sixth of a second or so."""
        nvml = self._nvml
        try:
            return list(nvml.nvmlDeviceGetProcessUtilization(self._handle, self._began_us))
        except nvml.NVMLError as error:
            # Its way to say that nobody did.
            if getattr(error, "value", None) == nvml.NVML_ERROR_NOT_FOUND:
                return []
            raise

    def _current_reasons(self) -> int:
        nvml = self._nvml
        # Drivers before 535 have the older name.
        ask = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None) or nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        return int(ask(self._handle))

    def _read_counters(self) -> dict[str, int]:
        wanted = {name: counter for name, (_, counter) in _REASONS.items() if counter is not None}
        values = self._ask(lambda: self._nvml.nvmlDeviceGetFieldValues(self._handle, list(wanted.values())))
        if values is None:
            return {}
        return {name: int(value.value.ullVal) for name, value in zip(wanted, values, strict=True) if value.nvmlReturn == 0}

    def _energy_mj(self) -> int:
        return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))

    def _ask(self, question: Callable[[], Any]) -> Any:
        """Ask NVML; None where this card or driver has no answer."""
        if self._handle is None:
            return None
        try:
            return question()
        except (self._nvml.NVMLError, AttributeError):
            return None


class EnergyMeter:
    """Reads an energy counter in millijoules, in a thread, while something runs: `with meter: …`.

    Only whole steps of the counter count, so that neither end of the run falls into one.
    """

    def __init__(self, read_mj: Callable[[], int]) -> None:
        self._read_mj = read_mj
        self._steps: list[tuple[float, int]] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> EnergyMeter:
        """Start to read."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._done.set()
        self._thread.join()

    @property
    def power_w(self) -> float | None:
        """The mean power between the first and the last step seen; None where there were too few."""
        # The first reading lies somewhere within a step.
        steps = self._steps[1:]
        if len(steps) <= _ENERGY_STEPS:
            return None
        (from_s, from_mj), (to_s, to_mj) = steps[0], steps[-1]
        return (to_mj - from_mj) * 1e-3 / (to_s - from_s)

    def _watch(self) -> None:
        while True:
            energy_mj = self._read_mj()
            if not self._steps or energy_mj != self._steps[-1][1]:
                self._steps.append((time.monotonic(), energy_mj))
            if self._done.wait(_ENERGY_POLL_S):
                return


def monitor(uuid: str) -> Monitor:
    """Watch a GPU from a worker of ours."""
    return Monitor(uuid, nvml_module(), is_ours)


def nvml_module() -> Any:
    """The module pynvml; None where it is not installed."""
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return None


def busy_before(share: float | None) -> list[str]:
    """The flag of a GPU that was in use before anything of ours ran."""
    return ["gpu_busy_before"] if share is not None and share > _BUSY_BEFORE else []


def utilisation(uuid: str) -> float | None:
    """The share of the last second in which anything ran on a GPU; None where nobody can tell."""
    nvml = nvml_module()
    if nvml is None:
        return None
    try:
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}")
        return float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu) / 100
    except nvml.NVMLError:
        return None


def is_ours(pid: int) -> bool | None:
    """Whether a process descends from the zygote that this one came from; None where it cannot be seen."""
    # Zygote, keeper, worker: see zygote.py.
    zygote = _parent(os.getppid())
    while pid > 1:
        if pid == zygote:
            return True
        above = _parent(pid)
        if above is None:
            return None
        pid = above
    return False


def _parent(pid: int) -> int | None:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("PPid:")), None)
