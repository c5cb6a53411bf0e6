"""Numbers for people: three digits, and the unit that suits them."""

from __future__ import annotations


def duration(seconds: float | None) -> str:
    """Write a time as `12.3 µs`; nothing where it is unknown."""
    if seconds is None:
        return ""
    if seconds >= 1:
        return f"{_rounded(seconds)} s"
    # The smallest unit is the microsecond: no kernel is measured to a nanosecond.
    return f"{_rounded(seconds * 1e3)} ms" if seconds >= 1e-3 else f"{_rounded(seconds * 1e6)} µs"  # noqa: PLR2004


def energy(joules: object) -> str:
    """Write an energy as `12.3 mJ`; nothing where it is unknown."""
    if not isinstance(joules, (int, float)):
        return ""
    if joules >= 1:
        return f"{_rounded(joules)} J"
    return f"{_rounded(joules * 1e3)} mJ" if joules >= 1e-3 else f"{_rounded(joules * 1e6)} µJ"  # noqa: PLR2004


def factor(ratio: float | None) -> str:
    """Write a ratio as `2.31×`; nothing where it is unknown."""
    return "" if ratio is None else f"{_rounded(ratio)}×"


def interval(low: float | None, high: float | None) -> str:
    """Write the bounds of a ratio as `2.28 to 2.35`; nothing where they are unknown."""
    return "" if low is None or high is None else f"{_rounded(low)} to {_rounded(high)}"


def _rounded(value: float) -> str:
    text = f"{value:#.3g}"
    # Three digits end in a bare point from 100 on, and in an exponent from 1000 on.
    return f"{value:.0f}" if "e+" in text else text.rstrip(".")
