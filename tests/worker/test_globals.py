"""What belongs to everyone: what counts as a change of it, and what does not."""

from __future__ import annotations

import ctypes
import math
import os
import random
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional

from kbench.worker.globals import GlobalState

LIBM = ctypes.CDLL("libm.so.6")


@pytest.fixture
def state() -> Iterator[GlobalState]:
    made = GlobalState()
    assert made.changes() == []
    yield made
    assert made.changes() == []


@pytest.mark.parametrize(
    ("owner", "name", "value", "told"),
    [
        (torch, "add", torch.sub, "torch.add"),
        (torch, "allclose", lambda *_: True, "torch.allclose"),
        (torch.Tensor, "sum", torch.Tensor.prod, "Tensor.sum"),
        (torch.Tensor, "__eq__", lambda *_: True, "Tensor.__eq__"),
        (functional, "relu", functional.leaky_relu, "torch.nn.functional.relu"),
        (torch.nn.ReLU, "forward", lambda _, x: x, "ReLU.forward"),
        (random, "random", lambda: 0.5, "random.random"),
        (random.Random, "random", lambda _: 0.5, "Random.random"),
        (math, "exp", None, "math.exp"),
        (math, "pi", 3.0, "math.pi"),
    ],
)
def test_what_was_there_and_is_another_object_is_named(state: GlobalState, owner: Any, name: str, value: object, told: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, value)
        assert state.changes() == [told]


def test_a_function_of_other_code_is_named(state: GlobalState) -> None:
    code = functional.softmax.__code__
    functional.softmax.__code__ = functional.softmin.__code__
    try:
        assert state.changes() == ["torch.nn.functional.softmax"]
    finally:
        functional.softmax.__code__ = code


def test_new_names_are_nobodys_concern(state: GlobalState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "something_new", lambda: None, raising=False)
    monkeypatch.setattr(torch.Tensor, "something_new", lambda _: None, raising=False)

    assert state.changes() == []


def test_what_torch_wraps_anew_is_the_same(state: GlobalState, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch.compile does; a function of torch's that was known before is no wrapper."""
    inner = torch._dynamo.disable(torch.manual_seed)
    monkeypatch.setattr(torch, "manual_seed", inner)

    assert state.changes() == []


def test_random_states_of_a_candidates_own_are_allowed(state: GlobalState) -> None:
    random.seed(3)
    random.Random(4).random()
    torch.Generator().manual_seed(5)
    torch.manual_seed(6)

    assert state.changes() == []


def _rounding() -> Callable[[], object]:
    LIBM.fesetround(0x400 if os.uname().machine != "aarch64" else 0x800000)
    return lambda: LIBM.fesetround(0)


def _mask() -> Callable[[], object]:
    before = os.umask(0o027)
    return lambda: os.umask(before)


def _handler() -> Callable[[], object]:
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    return lambda: signal.signal(signal.SIGUSR1, before)


def _timer() -> Callable[[], object]:
    signal.setitimer(signal.ITIMER_VIRTUAL, 1e6)
    return lambda: signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)


def _affinity() -> Callable[[], object]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    return lambda: os.sched_setaffinity(0, before)


# Of one processor, none can be given up.
AFFINITY = [(_affinity, "processor affinity")] if len(os.sched_getaffinity(0)) > 1 else []


@pytest.mark.parametrize(
    ("change", "told"),
    [(_rounding, "rounding mode"), (_mask, "umask"), (_handler, "signal handlers"), (_timer, "timer signals"), *AFFINITY],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_setting_of_the_process_is_named(state: GlobalState, change: Callable[[], Callable[[], object]], told: str) -> None:
    undo = change()
    try:
        # Under another rounding, other numbers read differently, too.
        assert told in state.changes()
    finally:
        undo()
