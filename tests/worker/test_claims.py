"""A process that answers with anything at all: the judge goes on, and the candidate has failed."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbench.claims import Claims
from kbench.protocol import Channel, Closed, ProtocolError, decode, encode
from kbench.records import Case, Reason, Status, exploit
from kbench.worker.candidate import Worker
from kbench.worker.evidence import Tolerance
from kbench.worker.judge import Judge, Opening
from tests.worker.timing.in_process import SETTINGS

SOURCE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(8))

    def forward(self, x):
        return x * self.w + 1, 3.0

def get_inputs():
    return [torch.randn(8, 8)]

def get_init_inputs():
    return []

ModelNew = Model
"""
# Values as JSON: of every type, of sizes that overflow floats, deep, empty, half of a surrogate pair.
HOSTILE = [
    "null",
    "true",
    "-1",
    "0",
    "5e-324",
    "1e300",
    "1e999",
    "-1e999",
    "1" + "0" * 400,
    '"\\ud800"',
    '""',
    '"text"',
    "[]",
    "{}",
    "[1e999]",
    "[" * 400 + "]" * 400,
    '[["w", "float32", [1e999]]]',
    '[["w", {}, [8]]]',
    '[["w", "float32", [8]], ["w", "float32", [8]]]',
    '{"k": "float", "v": "0x1p99999"}',
    '{"k": "int", "v": "1' + "0" * 390 + '"}',
    '{"k": "str", "v": "\\ud800"}',
    '{"k": "dict", "keys": [[]], "items": [{"k": "none"}]}',
    '{"k": "seq", "items": [' * 200 + "]}" * 200,
    '{"k": [], "v": {}}',
    '{"k": "other", "v": ' + "[" * 300 + "]" * 300 + "}",
]
HOSTILE_TIMES = ["1" + "0" * 400, "5e-324", '"\\ud800"']
Answers = Callable[[str, dict[str, Any]], bytes]


class Loop:
    """A worker in a thread of this process, at the other end of a judge's channel; `answers` writes each answer as a line."""

    def __init__(self, answers: Answers) -> None:
        ours, self._theirs = socket.socketpair()
        self.fd = ours.detach()
        self._unused = socket.socketpair()
        self._worker = Worker({"device": "cpu", "threads": 1, "wrap": "", "interpret": False}, self._unused[0])
        self._thread = threading.Thread(target=self._serve, args=(answers,))
        self._thread.start()

    def _serve(self, answers: Answers) -> None:
        channel = Channel(self._theirs, accept_fds=True)
        channel.send({"pid": 2**22})  # no process has it
        with contextlib.suppress(Closed):
            while True:
                request = channel.receive()
                answer = self._worker.answer(request, channel.take_fds())
                self._theirs.sendall(answers(request["op"], {**answer, "to": request["id"]}) + b"\n")

    def close(self) -> None:
        """Wait for its end, which comes when the judge has hung up."""
        self._thread.join()
        for opened in (self._theirs, *self._unused):
            opened.close()


class Bench:
    """A judge of one task, both of whose sides are workers of this process."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = folder / "reference.py"
        self.path.write_text(SOURCE)
        opening = Opening(
            task="t",
            reference=str(self.path),
            device="cpu",
            seed=1,
            trials=2,
            tolerance=Tolerance(by_dtype={}, default=(1e-4, 1e-4), allow_nan=False),
            cases=(Case(),),
            threads=1,
            beyond_inputs=False,
            strict_float32=False,
            cache=str(folder),
            driver="",
            draws="same",
        )
        self._parent = socket.socketpair()
        self.judge = Judge(opening, Channel(self._parent[0]))
        monkeypatch.setattr(self.judge, "tell", lambda stage: None)
        self._numbers = itertools.count()
        self._loops: list[Loop] = []

    def _fd(self, answers: Answers) -> int:
        self._loops.append(Loop(answers))
        return self._loops[-1].fd

    def verify(self, answers: Answers) -> dict[str, Any]:
        self.judge.close({}, [])
        request = {"op": "verify", **self._load("ModelNew"), "cases": ["default"], "baseline": False}
        return self.judge.answer(request, [self._fd(answers)])

    def time(self) -> dict[str, Any]:
        """Time what was verified last, against an honest reference."""
        settings = {**SETTINGS, "budget_s": 0.1, "repeat": 4}
        request = {"op": "time", "case": "default", "baseline": False, "settings": settings, "reference_module": "reference_of_claims"}
        answer = self.judge.answer(request, [self._fd(honest)])
        self.judge._peers["reference"].channel.close()
        return answer

    def _load(self, model: str) -> dict[str, Any]:
        return {"path": str(self.path), "module": f"claims_{next(self._numbers)}", "model": model}

    def close(self) -> None:
        self.judge.close({}, [])
        for opened in (*self._parent, *self._loops):
            opened.close()


def honest(_op: str, answer: dict[str, Any]) -> bytes:
    return json.dumps(answer).encode()


def claiming(op: str, field: str, value: str, **other: Any) -> Answers:
    """Answer one operation with a field of another value."""

    def answers(asked: str, answer: dict[str, Any]) -> bytes:
        if asked != op:
            return honest(asked, answer)
        rest = json.dumps({**answer, **other, field: None})
        return rest.replace(f'"{field}": null', f'"{field}": {value}').encode()

    return answers


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench(tmp_path, monkeypatch)
    yield made
    made.close()


def assert_the_judge_goes_on(answer: dict[str, Any], what: str) -> None:
    """Nothing is wrong with the task or the machine, and the parent can read the answer."""
    assert answer.get("status") not in (Status.ERROR, Status.SKIP), (what, answer)
    assert all(case["status"] in (Status.PASS, Status.FAIL) for case in answer.get("cases", [])), (what, answer)
    json.dumps(decode(encode(answer)[:-1]), ensure_ascii=False).encode()


def test_honest_answers_pass(bench: Bench) -> None:
    assert [case["status"] for case in bench.verify(honest)["cases"]] == [Status.PASS]
    assert bench.time().keys() == {"timing"}


@pytest.mark.parametrize(
    ("op", "field"),
    [
        ("construct", "manifest"),
        ("weights", "differed"),
        ("left_weights", "copied"),
        *(
            ("forward", field)
            for field in ("tree", "copied", "left", "reformed", "generators", "changed", "past_end", "state_changed", "cuda_error", "to", "ok")
        ),
    ],
)
def test_a_claim_in_verification_is_the_candidates_fault_at_most(bench: Bench, op: str, field: str) -> None:
    for value in HOSTILE:
        assert_the_judge_goes_on(bench.verify(claiming(op, field, value)), value)


@pytest.mark.parametrize("field", ["type", "message", "trace", "memory", "stage", "reason", "log"])
def test_a_claim_about_a_failure_is_a_failure(bench: Bench, field: str) -> None:
    for value in HOSTILE:
        answer = bench.verify(claiming("forward", field, value, ok=False))

        assert_the_judge_goes_on(answer, value)
        assert answer["status"] is Status.FAIL


@pytest.mark.parametrize(
    ("op", "field"),
    [("warm", "seconds"), ("wall", "seconds"), ("changes", "changed"), *(("slot", name) for name in ("seconds", "busy_s", "preemptions"))],
)
def test_a_claim_about_times_is_the_candidates_fault_at_most(bench: Bench, op: str, field: str) -> None:
    for value in HOSTILE_TIMES:
        bench.verify(claiming(op, field, value))
        answer = bench.time()

        assert_the_judge_goes_on(answer, value)
        assert "timing" in answer or answer["reason"] in (exploit("forged_message"), exploit("clock"), exploit("global_state")), (value, answer)


def test_what_is_of_no_known_form_is_called_a_forgery(bench: Bench) -> None:
    answer = bench.verify(claiming("forward", "tree", '{"k": "float", "v": "0x1p99999"}'))

    assert (answer["status"], answer["reason"]) == (Status.FAIL, exploit("forged_message"))


def test_more_times_than_calls_are_no_times(bench: Bench) -> None:
    bench.verify(claiming("warm", "seconds", json.dumps([1e-9] * 1000)))

    assert bench.time()["reason"] == exploit("clock")


def test_a_failure_is_told_with_its_text(bench: Bench) -> None:
    answer = bench.verify(claiming("forward", "message", '"half \\ud800 of it"', ok=False, type="ValueError"))

    assert (answer["reason"], answer["detail"]) == (Reason.RUN, "ValueError: half ? of it")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(JSON)
def test_a_field_is_of_the_type_that_is_asked_for_or_refused(value: object) -> None:
    for read, kinds in ((Claims.flag, bool), (Claims.text, str), (Claims.flags, list), (Claims.texts, list), (Claims.numbers, list), (Claims.named, dict)):
        try:
            found = read(Claims({"field": value}), "field")  # type: ignore[operator]
        except ProtocolError:
            continue
        assert isinstance(found, kinds)
        json.dumps(found, allow_nan=False, ensure_ascii=False).encode()
