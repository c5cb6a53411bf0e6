"""What is told of traced calls, by made-up intervals."""

from __future__ import annotations

import pytest

from kbench.worker.timing.kernels import Interval, split, summary

MARKER = (0, 10, "void spin_kernel(long)")


def run(*names: str) -> list[Interval]:
    """Kernels of 2 µs, one every 3 µs."""
    return [(3000 * index, 3000 * index + 2000, name) for index, name in enumerate(names)]


def test_a_call_is_counted_listed_and_timed() -> None:
    told = summary([run("one", "two")] * 3)

    assert (told["count"], told["least"], told["same"]) == (2, 2, True)
    assert (told["busy_s"], told["span_s"]) == (pytest.approx(4e-6), pytest.approx(5e-6))
    assert told["list"] == [["one", pytest.approx(2e-6)], ["two", pytest.approx(2e-6)]]


def test_what_overlaps_is_busy_once() -> None:
    assert summary([[(0, 3000, "one"), (1000, 2000, "two"), (2000, 5000, "three")]])["busy_s"] == pytest.approx(5e-6)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (("two", "one", "one"), True),
        (("one", "two", "two"), False),
        (("one", "one", "three"), False),
        (("one", "two"), False),
        ((), False),
    ],
)
def test_calls_are_the_same_where_each_ran_the_same_kernels_as_often(other: tuple[str, ...], same: bool) -> None:
    assert summary([run("one", "one", "two"), run("one", "one", "two"), run(*other)])["same"] is same


def test_one_call_that_ran_nothing_is_told_though_the_median_call_ran_some() -> None:
    told = summary([run("one"), run(), run("one")])

    assert (told["count"], told["least"]) == (1, 0)


def test_calls_that_ran_nothing_have_no_time() -> None:
    assert summary([run(), run()]) == {"count": 0, "least": 0, "same": True, "busy_s": 0.0, "span_s": 0.0, "list": []}


def test_intervals_are_split_by_the_sleep_before_each_call() -> None:
    intervals = [(25, 30, "late"), MARKER, (15, 20, "one"), (20, 24, MARKER[2]), (-5, -1, "before")]

    assert split(intervals, 2) == [[(15, 20, "one")], [(25, 30, "late")]]
    with pytest.raises(ValueError, match="2 of 3 calls"):
        split(intervals, 3)


def test_a_call_that_sleeps_itself_is_counted_with_its_sleeps() -> None:
    """Each of two calls sleeps once, in between its kernels."""
    own = MARKER[2]
    one = [(0, 5, MARKER[2]), (10, 12, "first"), (13, 15, own), (16, 18, "second")]
    intervals = [*one, *((start + 100, end + 100, name) for start, end, name in one)]

    assert [[name for _, _, name in run] for run in split(intervals, 2)] == [["first", own, "second"]] * 2
