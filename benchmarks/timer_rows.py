"""What the rows of `benchmarks/timer.py` have in common."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from benchmarks import real
from kbench import stats
from kbench.records import Comparison

DIFFERENT = (Comparison.FASTER, Comparison.SLOWER)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A test, what is demanded of it, and what it came to; `kept` is None where it could not be measured."""

    number: str
    test: str
    demand: str
    figure: str
    kept: bool | None


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much to measure."""

    device: str
    quick: bool

    def runs(self, full: int) -> int:
        """So many runs, or a fifth of them."""
        return max(2, full // 5) if self.quick else full


@dataclass(frozen=True, kw_only=True)
class Alikeness:
    """What the same code in two processes came to, over many pairs of them."""

    called: int
    held: float
    median_error: float
    p95_error: float
    half_width: float
    scatter: float
    flags: str


def alikeness(outcome: real.Outcome, truth: float = 1.0) -> Alikeness:
    """Hold the verdict of each pair of processes alone against the truth."""
    alone = outcome.alone
    errors = sorted(abs(one["speedup"] / truth - 1) for one in alone)
    flags: dict[str, int] = {}
    for one in alone:
        for flag in one["flags"]:
            flags[flag] = flags.get(flag, 0) + 1
    return Alikeness(
        called=sum(one["verdict"] in DIFFERENT for one in alone),
        held=sum(one["speedup_low"] <= truth <= one["speedup_high"] for one in alone) / len(alone),
        median_error=stats.median(errors),
        p95_error=errors[min(len(errors) - 1, math.ceil(0.95 * len(errors)) - 1)],
        half_width=stats.median([(one["speedup_high"] - one["speedup_low"]) / 2 for one in alone]),
        scatter=statistics.stdev([math.log(one["speedup"]) for one in alone]) if len(alone) > 1 else 0.0,
        flags=" ".join(f"{name}:{count}" for name, count in sorted(flags.items())),
    )
