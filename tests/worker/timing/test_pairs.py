"""What the judge makes of the slots that it is told of: retries, flags, and where each side ran."""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from kbench import samples
from kbench.worker.reference import ReferenceFault
from kbench.worker.session import CandidateFault
from kbench.worker.timing.pairs import CaseTimer
from tests.worker.test_discrete import stable
from tests.worker.test_variants import reference_of
from tests.worker.timing.in_process import time_alike


def steady(answer: dict[str, Any]) -> dict[str, Any]:
    """A slot of exactly 10 µs a call that nothing disturbed."""
    return {**answer, "seconds": 10e-6, "preemptions": 0}


def test_equal_sides_are_the_same_once_enough_processes_say_so(tmp_path: Path) -> None:
    timing = time_alike(tmp_path, (steady, steady))

    assert timing["verdict"] == "unresolved"
    assert timing["speedup"] == 1.0
    assert samples.conclude(samples.joined([timing["samples"]] * 8))["verdict"] == "same"
    assert timing["pairs"] == 40


def test_half_the_time_is_twice_the_speed_and_swapped_sides_give_the_inverse(tmp_path: Path) -> None:
    def taking(seconds: float) -> Any:
        return lambda answer: {**steady(answer), "seconds": seconds}

    there = time_alike(tmp_path, (taking(2e-3), taking(1e-3)))
    back = time_alike(tmp_path, (taking(1e-3), taking(2e-3)))

    assert (there["verdict"], there["speedup"]) == ("faster", pytest.approx(2.0))
    assert (back["verdict"], back["speedup"]) == ("slower", pytest.approx(0.5))
    assert there["speedup_low"] * back["speedup_high"] == pytest.approx(1.0)


def test_a_pair_that_the_scheduler_interrupted_is_measured_again(tmp_path: Path) -> None:
    """Every other slot of the candidate takes ten times as long, and says that a core was taken from it."""
    turns = itertools.cycle([False, True])

    def interrupted(answer: dict[str, Any]) -> dict[str, Any]:
        return {**answer, "seconds": 100e-6, "preemptions": 1} if next(turns) else steady(answer)

    timing = time_alike(tmp_path, (steady, interrupted))

    assert timing["speedup"] == 1.0
    assert timing["samples"]["candidate_s"] == [10e-6] * 40
    assert timing["extra"]["discarded_pairs"] >= 39
    assert "preempted" not in timing["flags"]


def test_pairs_that_are_always_interrupted_are_kept_and_said(tmp_path: Path) -> None:
    timing = time_alike(tmp_path, (steady, lambda answer: {**steady(answer), "preemptions": 2}))

    assert timing["pairs"] == 40
    assert "preempted" in timing["flags"]
    assert timing["extra"]["discarded_pairs"] == 3 * 40
    assert [report["preemptions"] for report in timing["samples"]["candidate_reports"]] == [2] * 40


def waits(*late_s: float) -> tuple[type[CaseTimer], list[float]]:
    """A timer whose candidate's callers wait so much longer than it says in each look at them; what is left of them."""
    left = list(late_s)

    class Waits(CaseTimer):
        def _measure_wall(self) -> None:
            for side, excess_s in zip(self._sides, (0.0, left.pop(0)), strict=True):
                side.wall_s += [10e-6] * 4
                side.wall_excess_s += [excess_s] * 4
                side.deliver_excess_s += [0.0] * 4

    return Waits, left


def test_a_busy_moment_in_which_callers_waited_accuses_nobody(tmp_path: Path) -> None:
    """All rounds of the candidate met it at first, and none of the reference's; those that follow did not."""
    timer, left = waits(0.05, 0.0, 0.0)

    assert time_alike(tmp_path, (steady, steady), timer=timer)["speedup"] == 1.0
    assert left == [0.0]


def test_a_candidate_that_always_keeps_callers_waiting_without_saying_so_is_refused(tmp_path: Path) -> None:
    timer, _ = waits(*[0.05] * 20)

    with pytest.raises(CandidateFault, match="a round of waits"):
        time_alike(tmp_path, (steady, steady), timer=timer)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core")
def test_both_sides_of_a_block_are_sent_to_one_core(tmp_path: Path) -> None:
    """Beside a busy neighbour a core takes twice as long: a side that stays there would look slow."""
    sent: dict[str, list[int]] = {"reference": [], "candidate": []}

    def note(side: str) -> Any:
        def alter(answer: dict[str, Any]) -> dict[str, Any]:
            sent[side].append(answer["asked_core"])
            return steady(answer)

        return alter

    time_alike(tmp_path, (note("reference"), note("candidate")))

    assert sent["reference"] == sent["candidate"]
    assert len(set(sent["reference"])) > 1
    assert all(len(set(block)) == 1 for block in zip(*[iter(sent["reference"])] * 4, strict=True))


DRAWN = """
import random
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return {returned}

def get_inputs():
    return [torch.randn(random.randint(2, 9), 8)]

def get_init_inputs():
    return []
"""


def test_shapes_that_are_drawn_are_timed_at_the_largest_of_them(tmp_path: Path) -> None:
    timing = time_alike(tmp_path, (steady, steady), source=DRAWN.format(returned="x * 2 + 1"))

    assert timing["speedup"] == 1.0
    assert timing["extra"]["checked_outputs"] > 0
    assert "drawn_shapes" in timing["flags"]


class TimedTwice(CaseTimer):
    """The second timer of a case, as a candidate has it after a baseline."""

    def __init__(self, *given: Any) -> None:
        with contextlib.suppress(ReferenceFault):
            super().__init__(*given)
        super().__init__(*given)


@pytest.mark.parametrize("timer", [CaseTimer, TimedTwice])
def test_shapes_that_depend_on_values_are_refused_as_the_tasks_fault(tmp_path: Path, timer: type[CaseTimer]) -> None:
    with pytest.raises(ReferenceFault, match="depend on the values"):
        time_alike(tmp_path, (steady, steady), source=DRAWN.format(returned="x[x > 0]").replace("random.randint(2, 9)", "64"), timer=timer)


def test_equal_values_may_be_in_another_order_when_timed_and_others_may_not(tmp_path: Path) -> None:
    reference = reference_of(tmp_path, "torch.topk(x, 5).indices", inputs="torch.randint(0, 20, (16, 100))")
    timer = object.__new__(CaseTimer)
    timer._reference, timer._draws = reference, False
    args = reference.reference.inputs(reference.case, "timed")
    expected = torch.topk(args[0], 5).indices

    assert not timer._differing(0, stable(args[0], 5), expected, args).any()
    assert timer._differing(0, stable(args[0] // 2, 5), expected, args).sum() > 16
    # Another expectation than the reference's own on these inputs is held to the letter.
    assert timer._differing(0, stable(args[0], 5), expected.flip(1), args).sum() > 16
