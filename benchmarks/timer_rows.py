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
    """How runs agree with the truth; `scatter` is the standard deviation from one pair of processes to another."""

    runs: int
    called: int
    held: int
    median_error: float
    p95_error: float
    half_width: float
    scatter: float
    flags: str

    @property
    def is_sound(self) -> bool:
        """At most one difference called in a hundred, and the truth in 95 intervals of a hundred."""
        return self.called <= max(1, self.runs // 100) and self.held >= math.floor(0.95 * self.runs)

    def __str__(self) -> str:
        """Give it as a figure."""
        found = f"called {self.called}/{self.runs}, holds {self.held}/{self.runs}, error {self.median_error:.2%} (95 %: {self.p95_error:.2%}), "
        return found + f"half-width {self.half_width:.2%}; processes scatter by {self.scatter:.2%} {self.flags}".rstrip()


def alikeness(outcome: real.Outcome, truth: float = 1.0) -> Alikeness:
    """Hold the verdict of every run against the truth; `called` counts faster and slower where there is no difference."""
    runs = outcome.runs
    errors = sorted(abs(one["speedup"] / truth - 1) for one in runs)
    flags: dict[str, int] = {}
    for one in outcome.alone:
        for flag in one["flags"]:
            flags[flag] = flags.get(flag, 0) + 1
    return Alikeness(
        runs=len(runs),
        called=sum(one["verdict"] in DIFFERENT for one in runs),
        held=sum(one["speedup_low"] <= truth <= one["speedup_high"] for one in runs),
        median_error=stats.median(errors),
        p95_error=errors[min(len(errors) - 1, math.ceil(0.95 * len(errors)) - 1)],
        half_width=stats.median([(one["speedup_high"] - one["speedup_low"]) / 2 for one in runs]),
        scatter=statistics.stdev([math.log(one["speedup"]) for one in outcome.alone]) if len(outcome.alone) > 1 else 0.0,
        flags=" ".join(f"{name}:{count}" for name, count in sorted(flags.items())),
    )
