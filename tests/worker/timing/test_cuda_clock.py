"""The clock of a GPU, on a fake one whose every kernel takes the time it is told to take."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kbench.claims import Claims
from kbench.records import Case
from kbench.worker import memory
from kbench.worker.candidate import failure, with_written
from kbench.worker.evidence import Tolerance
from kbench.worker.reference import CaseReference, Reference
from kbench.worker.session import CandidateFault, forged
from kbench.worker.timing import pairs, slots, steady
from kbench.worker.timing.examine import CaseExaminer
from kbench.worker.timing.pairs import CaseTimer

from .fake_gpu import CLOCK_HZ, EVENT_S, KERNELS, FakeGpu, burst_clock, install

REFERENCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1
def get_inputs():
    return [torch.randn(8)]
def get_init_inputs():
    return []
"""
SETTINGS: dict[str, Any] = {"repeat": 40, "precision": 0.01, "budget_s": 2.0, "threads": 1, "verified_error": 0.0}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    return install(monkeypatch)


class FakeSide:
    """A session whose peer is a timer in this process."""

    baseline = False
    pid = 2**22  # no process has it

    def __init__(self, call: Callable[..., Any]) -> None:
        self.device = torch.device("cuda")
        self.arenas: dict[str, memory.Arena] = {}
        self.peer = self
        self._call = call

    def arena(self, name: str, n_bytes: int) -> memory.Arena:
        if name not in self.arenas or self.arenas[name].n_bytes < n_bytes:
            self.arenas[name] = memory.Arena(n_bytes, torch.device("cpu"))
        return self.arenas[name]

    def ask(self, _stage: str, op: str, **arguments: Any) -> Any:
        try:
            answer = getattr(self, f"do_{op}", lambda **given: getattr(self._timer, op)(given))(**arguments)
            return Claims(answer, forged) if isinstance(answer, dict) else answer
        except CandidateFault:
            raise
        except Exception as error:
            raise CandidateFault("run", failure(error)["message"]) from error

    def do_prepare(self, outputs: Any, written: list[int], threads: int) -> dict[str, Any]:
        inputs, places = self.arenas["inputs"].memory, self.arenas["outputs"].memory
        self._timed_call = with_written(self._call, written) if written else self._call
        self._timer = slots.CudaTimer(call=self._timed_call, inputs=inputs, outputs=places, places=outputs)
        return {}

    def do_changes(self) -> dict[str, Any]:
        return {"changed": []}

    def do_burst(self, args: Any, calls: bool) -> torch.Tensor:
        if calls:
            self._timer.hand_over([self._timed_call(*given) for given in self._timer.arguments({"args": args})])
        return self.arenas["outputs"].memory.clone()

    def do_chains(self, args: Any, kind: str, calls: int) -> dict[str, Any]:
        try:
            self._steady = steady.Steady(self._timer, self._timed_call, self._timer.arguments({"args": args}), kind=kind, calls=calls)
        except steady.CaptureError as error:
            return {"refused": str(error)}
        return {}

    def do_chain(self, seed: int) -> dict[str, Any]:
        answer, result = self._steady.measure(seed)
        self._timer.hand_over([result])
        return answer

    def do_kernels(self, args: Any) -> dict[str, Any]:
        from kbench.worker.timing import kernels

        return kernels.trace(self._call, self._timer.arguments({"args": args}), lambda: None)


def case_of(folder: Path, source: str) -> CaseReference:
    path = folder / "reference.py"
    path.write_text(source)
    tolerance = Tolerance(by_dtype={}, default=(1e-4, 1e-4), allow_nan=False)
    loaded = Reference(path, torch.device("cpu"), root_seed=1, label="task")
    return CaseReference(loaded, Case(), trials=2, tolerance=tolerance)


@pytest.fixture
def reference(tmp_path: Path) -> CaseReference:
    return case_of(tmp_path, REFERENCE)


def add_one(gpu: FakeGpu, *launches: float, host_s: float = 5e-6, before: Callable[[], object] = lambda: None) -> Callable[..., Any]:
    """A model that does what the reference does, in launches of so many seconds."""

    def call(x: torch.Tensor) -> torch.Tensor:
        before()
        for seconds in launches:
            gpu.launch(seconds, host_s=host_s)
        return x + 1

    return call


def timed(reference: CaseReference, *calls: Callable[..., Any]) -> dict[str, Any]:
    return CaseTimer(reference, *(FakeSide(call) for call in calls), SETTINGS).run()  # type: ignore[arg-type]


def examined(reference: CaseReference, timing: dict[str, Any], *calls: Callable[..., Any], known: dict[str, Any] | None = None) -> dict[str, Any]:
    sides = [FakeSide(call) for call in calls]
    return CaseExaminer(reference, *sides, SETTINGS).examine(timing, {} if known is None else known)  # type: ignore[arg-type]


def test_a_slot_measures_the_device_and_not_the_launches(gpu: FakeGpu, reference: CaseReference) -> None:
    found = timed(reference, add_one(gpu, 50e-6, host_s=300e-6), add_one(gpu, 25e-6, host_s=5e-6))

    assert found["reference_s"] == pytest.approx(50e-6 + EVENT_S / 2, abs=1e-8)
    assert found["candidate_s"] == pytest.approx(25e-6 + EVENT_S / 2, abs=1e-8)
    assert found["verdict"] == "faster"
    assert found["extra"]["reference_hot_s"] == pytest.approx(found["reference_s"], rel=1e-3)


def test_the_clock_of_the_card_is_told_by_the_sleep_of_each_slot_however_short(gpu: FakeGpu, reference: CaseReference) -> None:
    found = timed(reference, add_one(gpu, 50e-6, host_s=300e-6), add_one(gpu, 25e-6, host_s=5e-6))

    for side in ("reference", "candidate"):
        clocks = [report["sm_clock_hz"] for report in found["samples"][f"{side}_reports"]]
        assert clocks == pytest.approx([CLOCK_HZ] * len(clocks), rel=2e-3)
    assert found["extra"]["cycles_speedup"] == pytest.approx(found["speedup"], rel=3e-3)


@pytest.mark.parametrize("inputs", ["torch.randn(8)", "torch.randn(8), torch.randn(8, 3)"])
def test_a_model_that_changes_its_inputs_is_timed_on_inputs_of_its_own(gpu: FakeGpu, tmp_path: Path, inputs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All outputs are compared, those of hot slots, too, before which the same inputs were changed once; every seventh launch is late."""
    source = REFERENCE.replace("x + 1", "x.mul_(1.5).add_(1)").replace("self, x", "self, x, *rest").replace("torch.randn(8)", inputs)
    monkeypatch.setattr(pairs, "_CHECKED_SHARE", 1.0)
    monkeypatch.setattr(pairs, "_BURSTS_CHECKED", 1.0)

    turns = itertools.count()

    def call(x: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        gpu.launch(20e-6, host_s=5e-6 if next(turns) % 7 else 1e-3)
        return x.mul_(1.5).add_(1)

    sides = case_of(tmp_path, source), call, lambda *args: call(*args)
    found = examined(sides[0], timed(*sides), *sides[1:])

    assert found["extra"]["candidate_graph_s"] == pytest.approx(20e-6, rel=0.01)
    assert timed(*sides)["speedup"] == pytest.approx(1.0, rel=1e-3)


def test_a_timed_call_that_leaves_alone_what_the_reference_writes_into_is_refused(gpu: FakeGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "_CHECKED_SHARE", 1.0)

    def in_place(x: torch.Tensor) -> torch.Tensor:
        gpu.launch(20e-6)
        return x.mul_(1.5)

    def aside(x: torch.Tensor) -> torch.Tensor:
        gpu.launch(10e-6)
        return x * 1.5

    with pytest.raises(CandidateFault, match=r"input\[0\] after the call, .* of a timed call: 8 of 8 elements wrong"):
        timed(case_of(tmp_path, REFERENCE.replace("x + 1", "x.mul_(1.5)")), in_place, aside)


def test_swapped_sides_give_the_inverse(gpu: FakeGpu, reference: CaseReference) -> None:
    one, other = add_one(gpu, 40e-6), add_one(gpu, 31e-6)

    assert timed(reference, one, other)["speedup"] * timed(reference, other, one)["speedup"] == pytest.approx(1.0, rel=1e-3)


def test_a_sleep_before_the_launch_is_in_the_wall_time_alone_and_is_flagged(gpu: FakeGpu, reference: CaseReference) -> None:
    def sleep() -> None:
        gpu.host_s += 1e-3

    plain = timed(reference, add_one(gpu, 50e-6), add_one(gpu, 50e-6))
    slept = timed(reference, add_one(gpu, 50e-6), add_one(gpu, 50e-6, before=sleep))

    assert slept["candidate_s"] == pytest.approx(plain["candidate_s"], rel=1e-3)
    assert slept["speedup"] == pytest.approx(1.0, rel=1e-3)
    assert slept["candidate_wall_s"] - plain["candidate_wall_s"] == pytest.approx(1e-3, rel=0.01)
    assert slept["extra"]["candidate_enqueue_s"] > 1e-3
    assert "slow_launch" in slept["flags"]
    assert "slow_launch" not in plain["flags"]


def test_a_call_that_waits_for_the_device_cannot_hide_its_launch_and_is_flagged(gpu: FakeGpu, reference: CaseReference) -> None:
    found = timed(reference, add_one(gpu, 50e-6), add_one(gpu, 50e-6, before=gpu.synchronize))

    assert "host_bound" in found["flags"]
    assert "reference_host_bound" not in found["flags"]


def test_an_allocation_now_and_then_costs_its_slot_another_try_and_nothing_else(gpu: FakeGpu, reference: CaseReference) -> None:
    """An allocator that grows waits for the device and takes a millisecond: that slot's launch cannot be hidden."""
    calls = itertools.count(1)

    def allocate() -> None:
        if next(calls) in (30, 37, 52, 60):
            gpu.synchronize()
            gpu.host_s += 1e-3

    found = timed(reference, add_one(gpu, 50e-6), add_one(gpu, 50e-6, before=allocate))

    assert found["speedup"] == pytest.approx(1.0, rel=1e-3)
    assert found["speedup_low"] < 1 < found["speedup_high"]


def test_a_clock_that_only_ever_slows_ends_with_a_result(gpu: FakeGpu, reference: CaseReference) -> None:
    """Each launch takes a little longer than the last, as on a card that gets hotter and hotter."""
    launches = itertools.count()

    def hotter(x: torch.Tensor) -> torch.Tensor:
        gpu.launch(50e-6 * 1.0001 ** next(launches))
        return x + 1

    found = timed(reference, hotter, hotter)

    assert found["verdict"] not in ("faster", "slower")
    assert found["speedup_low"] < 1 < found["speedup_high"]


def test_a_kernel_near_the_floor_is_flagged(gpu: FakeGpu, reference: CaseReference) -> None:
    found = timed(reference, add_one(gpu, 50e-6), add_one(gpu, 0.2e-6))

    assert "at_launch_floor" in found["flags"]
    assert found["extra"]["floor_s"] == pytest.approx(EVENT_S / 2, abs=1e-8)


def test_a_coarse_clock_is_found_out_and_counts_against_a_difference(gpu: FakeGpu, reference: CaseReference) -> None:
    gpu.step_s = 1024e-9
    found = timed(reference, add_one(gpu, 10e-6), add_one(gpu, 9.5e-6))

    assert found["extra"]["clock_step_s"] == pytest.approx(1024e-9, abs=1e-9)
    assert found["extra"]["delta"] >= 0.1
    assert found["verdict"] not in ("faster", "slower")


def test_memory_and_cost_are_in_the_record(gpu: FakeGpu, reference: CaseReference) -> None:
    extra = timed(reference, add_one(gpu, 50e-6), add_one(gpu, 25e-6))["extra"]

    assert extra["candidate_memory_bytes"] == 1024
    assert extra["gpu_s"] > 40 * 75e-6
    assert extra["wall_s"] >= sum(extra["spent_s"].values()) * 0.99


def test_a_graph_takes_the_gaps_out_and_a_slope_the_events(gpu: FakeGpu, reference: CaseReference) -> None:
    calls = add_one(gpu, 1e-6, 1e-6, 1e-6), add_one(gpu, 2e-6)
    found = examined(reference, timed(reference, *calls), *calls)

    assert found["extra"]["reference_graph_s"] == pytest.approx(3e-6, rel=1e-3)
    assert found["extra"]["candidate_graph_s"] == pytest.approx(2e-6, rel=1e-3)
    assert found["extra"]["graph_speedup"] == pytest.approx(1.5, rel=1e-3)
    assert found["extra"]["graph_l2"] == "warm"
    assert found["extra"]["candidate_kernels"] == 2
    assert found["extra"]["kernels"]["candidate"] == [["one", 2e-6], ["two", 2e-6]]
    assert found["notes"] == []


def test_what_cannot_be_captured_is_told_and_measured_as_a_stream(gpu: FakeGpu, reference: CaseReference) -> None:
    calls = add_one(gpu, 10e-6), add_one(gpu, 4e-6, before=gpu.synchronize)
    found = examined(reference, timed(reference, *calls), *calls)

    assert "candidate_graph_s" not in found["extra"]
    assert found["extra"]["reference_stream_s"] == pytest.approx(10e-6, rel=1e-3)
    assert any("candidate's calls cannot be captured" in note and "not permitted" in note for note in found["notes"])


def test_a_candidate_that_is_wrong_under_replay_has_no_graph_time(gpu: FakeGpu, reference: CaseReference) -> None:
    def cheat(x: torch.Tensor) -> torch.Tensor:
        gpu.launch(1e-6)
        return x if gpu.capturing is not None else x + 1

    found = examined(reference, timed(reference, add_one(gpu, 10e-6), cheat), add_one(gpu, 10e-6), cheat)

    assert "candidate_graph_s" not in found["extra"]
    assert any("outputs differ" in note for note in found["notes"])


def test_what_fails_in_the_examination_is_a_note(gpu: FakeGpu, reference: CaseReference, monkeypatch: pytest.MonkeyPatch) -> None:
    from kbench.worker.timing import kernels

    def refuse(_call: object, _arguments: object, _hide: object) -> dict[str, Any]:
        raise RuntimeError("CUPTI is in use")

    calls = add_one(gpu, 10e-6), add_one(gpu, 4e-6)
    timing = timed(reference, *calls)
    monkeypatch.setattr(kernels, "trace", refuse)
    found = examined(reference, timing, *calls)

    assert "kernels not measured: CUPTI is in use" in found["notes"]
    assert found["extra"]["candidate_graph_s"] == pytest.approx(4e-6, rel=1e-3)


def test_a_forged_list_of_kernels_is_a_note(gpu: FakeGpu, reference: CaseReference, monkeypatch: pytest.MonkeyPatch) -> None:
    from kbench.worker.timing import kernels

    calls = add_one(gpu, 10e-6), add_one(gpu, 4e-6)
    timing = timed(reference, *calls)
    for claim in ({"count": "many"}, {"same": "yes"}, {"least": []}, {"list": "k"}):
        monkeypatch.setattr(kernels, "trace", lambda _call, _arguments, _hide, claim=claim: {**KERNELS, **claim})
        assert any("no known form" in note for note in examined(reference, timing, *calls, known=dict(KERNELS))["notes"])


@pytest.mark.parametrize(
    ("of_reference", "of_candidate", "flags"),
    [
        ({}, {}, set()),
        ({}, {"count": 0, "least": 0, "list": []}, {"no_kernels"}),
        ({}, {"same": False}, {"kernels_vary"}),
        ({}, {"least": 0, "same": False}, {"no_kernels", "kernels_vary"}),
        ({"count": 0, "least": 0, "list": []}, {"count": 0, "least": 0, "list": []}, set()),
        ({"same": False}, {"same": False}, set()),
    ],
)
def test_a_candidate_that_runs_nothing_or_other_kernels_from_call_to_call_is_flagged(
    of_reference: dict[str, Any],
    of_candidate: dict[str, Any],
    flags: set[str],
    gpu: FakeGpu,
    reference: CaseReference,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from kbench.worker.timing import kernels

    calls = add_one(gpu, 10e-6), add_one(gpu, 4e-6)
    timing = timed(reference, *calls)
    monkeypatch.setattr(kernels, "trace", lambda call, _arguments, _hide: {**KERNELS, **(of_reference if call is calls[0] else of_candidate)})
    found = examined(reference, timing, *calls)

    assert set(found["flags"]) & {"no_kernels", "kernels_vary"} == flags
    assert found["notes"] == []


def lying(gpu: FakeGpu, share: float, monkeypatch: pytest.MonkeyPatch) -> Callable[[torch.Tensor], torch.Tensor]:
    """A model of 20 µs whose process reports a share of what its events say."""
    call = add_one(gpu, 20e-6)
    measure = slots.CudaTimer.slot

    def slot(timer: slots.CudaTimer, request: dict[str, Any]) -> dict[str, Any]:
        answer = measure(timer, request)
        return {**answer, "seconds": share * answer["seconds"]} if timer._call is call else answer

    monkeypatch.setattr(slots.CudaTimer, "slot", slot)
    return call


@pytest.mark.parametrize("share", [0.01, 0.6])
def test_a_side_that_reports_less_than_its_calls_take_is_refused(
    share: float, gpu: FakeGpu, reference: CaseReference, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CandidateFault, match="by the judge's clock") as refused:
        timed(reference, add_one(gpu, 20e-6), lying(gpu, share, monkeypatch))

    assert refused.value.reason == "exploit:clock"


def test_a_side_that_reports_what_its_calls_take_is_vouched_for(gpu: FakeGpu, reference: CaseReference, monkeypatch: pytest.MonkeyPatch) -> None:
    found = timed(reference, add_one(gpu, 40e-6), lying(gpu, 1.0, monkeypatch))

    assert found["verdict"] == "faster"
    assert "clock_unverified" not in found["flags"]
    assert found["extra"]["burst_calls"] > 16


def unqueued(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nobody queue a burst's calls in time."""
    made = burst_clock(gpu)
    monkeypatch.setattr(made, "run", lambda clock, _run=made.run, **given: (lambda s, _q, out: (s, False, out))(*_run(clock, **given)))
    monkeypatch.setattr(pairs, "BurstClock", made)


def test_a_side_that_cannot_queue_at_the_gate_what_it_queued_in_a_slot_is_flagged(
    gpu: FakeGpu, reference: CaseReference, monkeypatch: pytest.MonkeyPatch
) -> None:
    unqueued(gpu, monkeypatch)

    found = timed(reference, add_one(gpu, 40e-6), add_one(gpu, 20e-6))

    assert "clock_unverified" in found["flags"]


def test_what_callers_wait_counts_where_nobody_can_vouch_for_a_shorter_time(
    gpu: FakeGpu, reference: CaseReference, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A candidate as slow as its reference waits inside its call, and reports a tenth of what the device takes."""
    unqueued(gpu, monkeypatch)
    launch = add_one(gpu, 100e-6)
    measure = slots.CudaTimer.slot
    calls = (launch, lambda x: launch(x))

    def slot(timer: slots.CudaTimer, request: dict[str, Any]) -> dict[str, Any]:
        answer = measure(timer, request)
        return {**answer, "seconds": 0.1 * answer["seconds"]} if timer._call is calls[1] else answer

    monkeypatch.setattr(slots.CudaTimer, "slot", slot)

    found = timed(reference, *calls)

    assert found["speedup"] == pytest.approx(10, rel=0.05)
    assert found["speedup_low"] < 1.5
    assert "clock_unverified" in found["flags"]


def test_rounds_of_short_waits_are_long_enough_for_the_clock_of_the_judge(gpu: FakeGpu, reference: CaseReference) -> None:
    found = timed(reference, add_one(gpu, 10e-6), add_one(gpu, 10e-6))

    rounds = len(found["samples"]["candidate_wall_excess_s"])
    calls = len(found["samples"]["candidate_wall_s"]) / rounds + 1
    assert calls == 64


def test_calls_that_take_a_third_longer_in_a_row_accuse_nobody_and_count_against_the_speed_up(
    gpu: FakeGpu, reference: CaseReference, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two streams that wait for each other do, as seen on an H200."""
    found = timed(reference, add_one(gpu, 40e-6), lying(gpu, 0.72, monkeypatch))

    assert "clock_unverified" in found["flags"]
    assert found["speedup_low"] < 0.8 * found["speedup"]
