"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbench.reports.units import duration, factor, interval


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, ""),
        (3.04e-6, "3.04 µs"),
        (56.789e-6, "56.8 µs"),
        (456e-6, "456 µs"),
        (1e-3, "1.00 ms"),
        (0.0235, "23.5 ms"),
        (1.0, "1.00 s"),
        (4321.0, "4321 s"),
        (32e-9, "0.0320 µs"),
        (0.0, "0.00 µs"),
    ],
)
def test_a_time_has_three_digits_and_its_unit(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("ratio", "text"), [(None, ""), (2.0, "2.00×"), (0.984, "0.984×"), (15.26, "15.3×"), (12345.0, "12345×")])
def test_a_ratio_has_three_digits(ratio: float | None, text: str) -> None:
    assert factor(ratio) == text


def test_half_an_interval_is_none() -> None:
    assert interval(2.281, 2.349) == "2.28 to 2.35"
    assert interval(None, 2.3) == interval(2.3, None) == ""


@settings(deadline=None)
@given(st.floats())
def test_any_number_is_written(number: float) -> None:
    """Rows mended by hand hold anything; a page is made all the same."""
    assert duration(number)
    assert interval(number, math.inf)
