"""A call that is rehearsed on other inputs first: what of the rehearsal reaches the real call, and what does not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kbench.records import Case, CheckResult
from kbench.worker import ways
from kbench.worker.evidence import Tolerance
from kbench.worker.reference import CaseReference, Reference
from kbench.worker.session import CaseSession
from tests.worker.timing.in_process import CPU, REFERENCE, InProcessPeer

Rehearse = Callable[[ways.Call, list[Any]], ways.Call]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[CaseSession]:
    path = tmp_path / "reference.py"
    path.write_text(REFERENCE)
    reference = Reference(path, CPU, root_seed=1, label="t")
    tolerance = Tolerance(by_dtype={}, default=(1e-4, 1e-4), allow_nan=False)
    peer = InProcessPeer(reference.module.Model, lambda answer: answer)
    made = CaseSession(peer, CaseReference(reference, Case(), trials=2, tolerance=tolerance), CPU)  # type: ignore[arg-type]
    made.construct()
    yield made
    made.close()
    peer.close()


@pytest.fixture
def rehearse(session: CaseSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., CheckResult | None]:
    """Judge one call that is rehearsed; `around` has the inputs as they are before they come."""

    def judge(way: Rehearse, rehearsal: list[Any] | None = None, around: Callable[[], None] = lambda: None) -> CheckResult | None:
        @contextlib.contextmanager
        def surround() -> Iterator[None]:
            around()
            yield

        monkeypatch.setitem(ways.WAYS, "rehearsed", ways.Way(call=lambda call, args: call(*args), rehearse=way, around=surround))
        given = session.reference.reference.inputs(session.reference.case, "rehearsal") if rehearsal is None else rehearsal
        return session.failure(next(iter(session.reference.trials())), way="rehearsed", rehearsal=given)

    return judge


def test_other_inputs_come_first_then_poison_then_the_trials(session: CaseSession, rehearse: Callable[..., CheckResult | None]) -> None:
    seen: list[torch.Tensor] = []
    inputs: list[torch.Tensor] = []

    def look() -> None:
        seen.append(inputs[0].clone())

    def way(call: ways.Call, args: list[Any]) -> ways.Call:
        inputs.extend(args)
        look()
        return lambda x: (look(), call(x))[1]

    assert rehearse(way, around=look) is None
    assert torch.equal(seen[0], session.reference.reference.inputs(session.reference.case, "rehearsal")[0])
    assert bool(seen[1].isnan().all())
    assert torch.equal(seen[2], next(iter(session.reference.trials())).args[0])


def test_what_a_rehearsal_computed_is_no_answer(rehearse: Callable[..., CheckResult | None]) -> None:
    def stale(call: ways.Call, args: list[Any]) -> ways.Call:
        result = call(*args)
        return lambda _: result

    failure = rehearse(stale)

    assert failure is not None
    assert failure.name == "values"


def test_a_store_beyond_the_inputs_of_a_rehearsal_shows(rehearse: Callable[..., CheckResult | None]) -> None:
    def spill(call: ways.Call, args: list[Any]) -> ways.Call:
        args[0].as_strided((1,), (1,), args[0].storage_offset() + args[0].numel()).zero_()
        return call

    failure = rehearse(spill)

    assert failure is not None
    assert failure.name == "mutation"


def test_a_rehearsal_has_the_trials_own_inputs_where_others_have_another_form(session: CaseSession, rehearse: Callable[..., CheckResult | None]) -> None:
    seen: list[torch.Tensor] = []

    def way(call: ways.Call, args: list[Any]) -> ways.Call:
        seen.append(args[0].clone())
        return call

    assert rehearse(way, rehearsal=[torch.zeros(4, 8)]) is None
    assert torch.equal(seen[0], next(iter(session.reference.trials())).args[0])
