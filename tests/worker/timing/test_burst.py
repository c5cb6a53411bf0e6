"""The judge's own clock over a burst of calls, with a side that is honest, early, late or gone."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kbench.worker import memory, tensors
from kbench.worker.timing import gate, slots
from kbench.worker.timing.burst import BurstClock

CPU = torch.device("cpu")
CALLS = 4


class Side:
    """A session whose peer is a thread of this process with a timer in it."""

    def __init__(self, call: Callable[..., Any], burst: Callable[[slots.CpuTimer, dict[str, Any], gate.Gate], None] | None = None) -> None:
        self.device = CPU
        self.arenas: dict[str, memory.Arena] = {}
        self.peer = self
        self.channel, self._other = socket.socketpair()
        self._call = call
        self._burst = burst or (lambda timer, request, at: timer.burst(request, at))
        layout = tensors.Layout()
        self.places = [[tensors.describe(torch.empty(8), place=layout.place)] for _ in range(CALLS)]
        self.arena("outputs", layout.end_bytes)

    def arena(self, name: str, n_bytes: int) -> memory.Arena:
        return self.arenas.setdefault(name, memory.Arena(n_bytes, CPU))

    def page(self, name: str) -> memory.Arena:
        return self.arena(name, gate.BYTES)

    def begin(self, stage: str, op: str, **request: Any) -> str:  # noqa: ARG002
        timer = slots.CpuTimer(call=self._call, inputs=self.arenas["inputs"].memory, outputs=self.arenas["outputs"].memory, places=self.places)
        at = gate.Gate(self.arenas["gate"].memory)
        self._thread = threading.Thread(target=self._serve, args=(timer, request, at))
        self._thread.start()
        return op

    def _serve(self, timer: slots.CpuTimer, request: dict[str, Any], at: gate.Gate) -> None:
        self._burst(timer, request, at)
        self._other.send(b"done")

    def finish(self, number: str, stage: str) -> None:  # noqa: ARG002
        self._thread.join()
        self.channel.recv(16)
        self.channel.close()
        self._other.close()


class Sets:
    """Inputs of known values."""

    def __init__(self) -> None:
        self.args = [[torch.full((8,), float(index))] for index in range(CALLS)]

    def write(self, arena: torch.Tensor, specs: list[tensors.Spec]) -> None:
        for spec, args in zip(specs, self.args, strict=True):
            tensors.write_tree(arena, spec, args)


def clock_of(side: Side) -> BurstClock:
    return BurstClock(side, Sets())  # type: ignore[arg-type]


def outputs_in(side: Side, snapshot: torch.Tensor) -> list[torch.Tensor]:
    return [tensors.view_of(snapshot, places[0]) for places in side.places]


def test_every_call_of_a_burst_is_made_on_its_own_inputs() -> None:
    side = Side(lambda x: x * 2 + 1)

    _, queued, snapshot = clock_of(side).run(count=CALLS, seed=1, limit_s=60.0)

    assert queued
    assert [float(out[0]) for out in outputs_in(side, snapshot)] == [1.0, 3.0, 5.0, 7.0]


def test_a_burst_without_calls_makes_none() -> None:
    count = 0

    def call(x: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        return x * 2 + 1

    clock_of(Side(call)).run(count=CALLS, seed=1, limit_s=60.0)
    clock_of(Side(call)).run(count=CALLS, seed=1, limit_s=60.0, calls=False)

    assert count == CALLS


def test_a_side_that_was_never_asked_for_calls_hands_over_as_much_as_with_them() -> None:
    side = Side(lambda x: x * 2 + 1)

    _, _, snapshot = clock_of(side).run(count=CALLS, seed=1, limit_s=60.0, calls=False)

    assert all(bool((out == 0).all()) for out in outputs_in(side, snapshot))


def test_work_before_the_gate_opens_finds_no_inputs() -> None:
    """A side that computes as soon as it is asked computes on poison."""

    def burst(timer: slots.CpuTimer, request: dict[str, Any], at: gate.Gate) -> None:
        early = [[args[0] * 2 + 1] for args in timer.arguments(request)]
        at.post(gate.QUEUED)
        at.wait(gate.OPEN)
        timer.hand_over(early)
        at.post(gate.DONE)

    side = Side(lambda x: x * 2 + 1, burst)
    _, _, snapshot = clock_of(side).run(count=CALLS, seed=1, limit_s=60.0)

    assert all(bool(out.isnan().all()) for out in outputs_in(side, snapshot))


def test_work_after_the_end_was_told_is_not_in_the_copy() -> None:
    seen = threading.Event()

    def burst(timer: slots.CpuTimer, request: dict[str, Any], at: gate.Gate) -> None:
        at.post(gate.QUEUED)
        at.wait(gate.OPEN)
        at.post(gate.DONE)
        assert seen.wait(60)
        timer.hand_over([[args[0] * 2 + 1] for args in timer.arguments(request)])

    class Watched(Side):
        def finish(self, number: str, stage: str) -> None:
            seen.set()
            super().finish(number, stage)

    side = Watched(lambda x: x * 2 + 1, burst)
    _, _, snapshot = clock_of(side).run(count=CALLS, seed=1, limit_s=60.0)

    assert all(bool(out.isnan().all()) for out in outputs_in(side, snapshot))


def test_a_side_that_waits_for_the_inputs_while_it_queues_is_let_through_after_a_while() -> None:
    def burst(timer: slots.CpuTimer, request: dict[str, Any], at: gate.Gate) -> None:
        at.wait(gate.OPEN)
        timer.hand_over([[args[0] * 2 + 1] for args in timer.arguments(request)])
        at.post(gate.QUEUED)
        at.post(gate.DONE)

    side = Side(lambda x: x * 2 + 1, burst)
    _, queued, snapshot = clock_of(side).run(count=CALLS, seed=1, limit_s=0.01)

    assert not queued
    assert float(outputs_in(side, snapshot)[3][0]) == 7.0


def test_a_side_that_answers_without_a_burst_is_not_waited_for() -> None:
    side = Side(lambda x: x, lambda _timer, _request, _at: None)

    _, queued, snapshot = clock_of(side).run(count=CALLS, seed=1, limit_s=60.0)

    assert not queued
    assert all(bool(out.isnan().all()) for out in outputs_in(side, snapshot))


@pytest.mark.gpu
def test_a_stream_waits_at_the_gate() -> None:
    page = memory.Arena(gate.BYTES, CPU)
    at = gate.Gate(page.memory)
    at.reset()
    x = torch.zeros(8, device="cuda")
    torch.cuda.synchronize()

    at.queue_wait(gate.OPEN)
    x.add_(1)
    at.queue_post(gate.DONE)
    assert not at.has_come(gate.DONE)
    at.post(gate.OPEN)
    at.wait(gate.DONE)
    torch.cuda.synchronize()

    assert float(x.sum()) == 8.0
