"""What a long run tells of its pace."""

from __future__ import annotations

import json

import pytest

from kbench import progress
from kbench.records import Status, Verdict

VERDICT = Verdict(task="t", candidate="c", device="cpu", status=Status.PASS)


class Clock:
    """A clock that moves as it is told."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_the_pace_is_told_now_and_then_with_the_time_left() -> None:
    clock = Clock()
    pace = progress._Pace(clock)
    pace.start(1000)
    told = []
    for _ in range(1000):
        clock.now_s += 0.5
        told.append(pace.advance())

    assert [line for line in told if line][0] == "20 of 1000 done, 2/s, 8 min 10 s left"
    assert len([line for line in told if line]) == 49
    assert told[-1] == ""


def test_times_left_are_given_in_the_units_that_fit() -> None:
    assert [progress._duration(seconds) for seconds in (9.6, 61, 3 * 3600 + 120)] == ["10 s", "1 min 01 s", "3 h 02 min"]


def test_with_json_the_pace_goes_to_stderr_only(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    reporter = progress.JsonReporter()
    reporter._pace = progress._Pace(clock)
    reporter.started(3)
    for _ in range(3):
        clock.now_s += 60.0
        reporter.verdict(VERDICT)
    told = capsys.readouterr()

    assert [json.loads(line)["candidate"] for line in told.out.splitlines()] == ["c"] * 3
    assert told.err.splitlines() == ["1 of 3 done, 0.0167/s, 2 min 00 s left", "2 of 3 done, 0.0167/s, 1 min 00 s left"]
