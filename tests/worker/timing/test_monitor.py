"""What the record says of the GPU's clocks and users, by an NVML that says what it is told to say."""

from __future__ import annotations

import os
import types
from typing import Any

import pytest

from kbench.worker.timing import monitor
from kbench.worker.timing.monitor import EnergyMeter, Monitor, busy_before, is_ours

STRANGER = 4_000_000


class FakeNvml:
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU, NVML_ERROR_NOT_FOUND = 1, 2, 0, 6

    class NVMLError(Exception):
        value = 6

    def __init__(self) -> None:
        self.sm_mhz = [1980]
        self.reasons = 0
        self.counters = dict.fromkeys((74, 76, 269, 270, 271), 0)
        self.pids = [os.getpid()]
        self.busy: list[int] | None = []
        self.missing: set[str] = set()

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in self.missing:
            raise AttributeError(name)
        return object.__getattribute__(self, name)

    def nvmlInit(self) -> None: ...  # noqa: N802 - NVML's names

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        if uuid != "GPU-1":
            raise self.NVMLError("Not Found")
        return uuid

    def nvmlDeviceGetClockInfo(self, _: str, kind: int) -> int:  # noqa: N802
        return (self.sm_mhz.pop(0) if len(self.sm_mhz) > 1 else self.sm_mhz[0]) if kind == 1 else 3201

    def nvmlDeviceGetCurrentClocksEventReasons(self, _: str) -> int:  # noqa: N802
        return self.reasons

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, _: str) -> int:  # noqa: N802
        return self.reasons

    def nvmlDeviceGetFieldValues(self, _: str, ids: list[int]) -> list[Any]:  # noqa: N802
        return [types.SimpleNamespace(nvmlReturn=0, value=types.SimpleNamespace(ullVal=self.counters[i])) for i in ids]

    def nvmlDeviceGetComputeRunningProcesses(self, _: str) -> list[Any]:  # noqa: N802
        return [types.SimpleNamespace(pid=pid) for pid in self.pids]

    def nvmlDeviceGetProcessUtilization(self, _: str, _since_us: int) -> list[Any]:  # noqa: N802
        if self.busy is None:
            raise self.NVMLError("Not Found")
        return [types.SimpleNamespace(pid=pid, smUtil=30) for pid in self.busy]

    def nvmlDeviceGetTemperature(self, _: str, _kind: int) -> int:  # noqa: N802
        return 41

    def nvmlDeviceGetTotalEnergyConsumption(self, _: str) -> int:  # noqa: N802
        raise self.NVMLError("Not Supported")


@pytest.fixture
def nvml() -> FakeNvml:
    return FakeNvml()


def watch(nvml: Any, uuid: str = "1", during: Any = lambda: None) -> monitor.Observation:
    watching = Monitor(uuid, nvml, lambda pid: pid == os.getpid())
    watching.begin()
    during()
    watching.sample()
    return watching.finish()


def test_clocks_and_temperature_are_in_the_record(nvml: FakeNvml) -> None:
    seen = watch(nvml)

    assert seen.fields == {"sm_clock_hz": 1980e6, "mem_clock_hz": 3201e6, "throttle": "", "gpu_users": 0, "temperature_c": 41}
    assert (seen.flags, seen.notes) == ([], [])


def test_a_clock_that_moves_is_flagged(nvml: FakeNvml) -> None:
    nvml.sm_mhz = [1980, 1700, 1980]

    assert watch(nvml).flags == ["unsteady_clock"]


@pytest.mark.parametrize(
    ("counter", "flag", "name"), [(269, "throttled", "sw_thermal"), (271, "throttled", "power_brake"), (74, "power_capped", "power_cap")]
)
def test_time_spent_slowed_is_found_by_its_counter_even_between_two_looks(nvml: FakeNvml, counter: int, flag: str, name: str) -> None:
    seen = watch(nvml, during=lambda: nvml.counters.update({counter: 10**12}))

    assert seen.flags == [flag]
    assert seen.fields["throttle"] == f"{name}:1.000"


def test_a_reason_without_a_counter_is_found_by_looking_whatever_the_driver_calls_it(nvml: FakeNvml) -> None:
    nvml.reasons = 0x08
    nvml.missing = {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetFieldValues"}

    assert watch(nvml).flags == ["throttled"]


def test_clocks_that_somebody_set_are_in_the_record_and_no_flag(nvml: FakeNvml) -> None:
    nvml.reasons = 0x02
    seen = watch(nvml)

    assert (seen.fields["throttle"], seen.flags) == ("clocks_set:1.000", [])


def test_a_neighbour_that_worked_is_flagged_and_an_idle_one_is_counted(nvml: FakeNvml) -> None:
    nvml.pids = [os.getpid(), STRANGER]
    idle = watch(nvml)
    nvml.busy = [STRANGER, os.getpid()]
    busy = watch(nvml)

    assert (idle.fields["gpu_users"], idle.flags) == (1, [])
    assert (busy.fields["gpu_users"], busy.flags) == (1, ["gpu_shared"])


def test_no_samples_means_nobody_worked_unless_the_driver_has_none_at_all(nvml: FakeNvml) -> None:
    nvml.pids = [os.getpid(), STRANGER]
    nvml.busy = None
    assert watch(nvml).flags == []

    nvml.missing = {"nvmlDeviceGetProcessUtilization"}
    assert watch(nvml).flags == ["gpu_shared"]


def test_process_ids_of_another_namespace_say_nothing(nvml: FakeNvml) -> None:
    nvml.pids = [STRANGER]
    seen = watch(nvml)

    assert "gpu_users" not in seen.fields
    assert any("other users" in note for note in seen.notes)


def test_without_nvml_the_record_says_so_and_stays_empty(nvml: FakeNvml) -> None:
    for seen, why in ((watch(None), "pynvml is not installed"), (watch(nvml, uuid="2"), "Not Found")):
        assert (seen.fields, seen.flags) == ({}, [])
        assert len(seen.notes) == 1
        assert why in seen.notes[0]
    assert Monitor("1", nvml, is_ours).energy_meter() is None


def test_use_before_anything_of_ours_ran_is_flagged() -> None:
    assert (busy_before(0.5), busy_before(0.05), busy_before(None)) == (["gpu_busy_before"], [], [])


def test_energy_counts_whole_steps_of_the_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"s": 0.0}
    meter = EnergyMeter(lambda: int(now["s"] // 0.1) * 30_000)
    monkeypatch.setattr(monitor.time, "monotonic", lambda: now["s"])
    looks = iter([*(i * 0.01 for i in range(200)), None])

    def advance(_: float) -> bool:
        at = next(looks)
        now["s"] = at if at is not None else now["s"]
        return at is None

    monkeypatch.setattr(meter._done, "wait", advance)
    with meter:
        meter._thread.join()

    assert meter.power_w == pytest.approx(300, rel=1e-6)


def test_a_process_that_nobody_of_ours_started_is_not_ours() -> None:
    assert is_ours(1) is False
    assert is_ours(STRANGER) is None
    # A test's grandparent stands where a worker's zygote does.
    assert is_ours(os.getpid()) is True
