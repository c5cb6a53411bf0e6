"""How many pairs each pair of processes measures."""

from __future__ import annotations

from kbench.engines.timing import shares


def test_a_number_of_pairs_is_shared_out_exactly() -> None:
    assert shares(21, 2) == [11, 10]
    assert shares(40, 4) == [10, 10, 10, 10]
    assert shares(3, 8) == [1, 1, 1]


def test_without_a_number_each_decides_for_itself() -> None:
    assert shares(None, 3) == [None, None, None]
