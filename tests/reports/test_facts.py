"""What follows from a timing's figures."""

from __future__ import annotations

import pytest

from kbench.reports.facts import gain, light, ratio


def test_a_ratio_needs_both_times() -> None:
    assert ratio(2.0, 1.0) == 2.0
    assert (ratio(None, 1.0), ratio(1.0, None), ratio(0.0, 1.0), ratio("", 1.0)) == (None, None, None, None)


@pytest.mark.parametrize(
    ("device", "cold", "wall", "steady", "words"),
    [
        ("cuda:0", 1.0, 1.0, None, ""),
        ("cuda:0", 2.0, 2.1, None, ""),
        ("cuda:0", 2.0, 2.0, 1.9, ""),
        ("cuda:0", 0.5, 0.5, 0.5, ""),
        # The headline shows no gain of which anything could be said.
        ("cuda:0", 1.0, 4.0, None, ""),
        ("cuda:0", 0.78, 1.2, 0.9, ""),
        ("cuda:0", 2.0, 4.0, 1.0, "gain is launch overhead"),
        ("cuda:0", 2.0, 16.0, 3.0, "gain is mostly launch overhead: 3.00× of 16.0× is left in a CUDA graph"),
        ("cuda:0", 2.0, 16.0, None, "gain is mostly launch overhead: 2.00× of 16.0× is left on the device"),
        ("cuda:0", None, None, None, ""),
        # A CPU launches nothing.
        ("cpu", 1.2, 16.0, None, ""),
        ("cpu", 0.504, 1.1, None, ""),
    ],
)
def test_a_gain_that_is_launches_is_told_from_one_of_the_kernels(device: str, cold: float, wall: float, steady: float, words: str) -> None:
    assert gain(device, cold, wall, steady) == words


def test_the_speed_of_light_is_a_share_or_a_latency() -> None:
    assert light(50e-6, "memory", 100e-6) == "50 % (memory)"
    assert light(1e-6, "latency", 6e-6) == "latency-bound"
    assert light(None, "", 6e-6) == light(None, "memory", 6e-6) == ""
