"""Simulated noise: what equal work takes on a real machine, as a factor of each sample in turn.

Every model has 1 % of scatter besides; the slow ones change over about sixty pairs.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator

from kbench import stats
from kbench.stats import PairedTiming, StoppingRule

SPAN = 120
PER_BLOCK = 4
RULE = StoppingRule(precision=0.01, budget_s=2.0)

Model = Callable[[random.Random], Iterator[float]]


def independent(rng: random.Random) -> Iterator[float]:
    """Scatter alone."""
    return itertools.repeat(1.0)


def outliers(rng: random.Random) -> Iterator[float]:
    """Every fiftieth sample takes up to three times as long."""
    while True:
        yield rng.uniform(1.3, 3.0) if rng.random() < 0.02 else 1.0


def ramp(rng: random.Random) -> Iterator[float]:
    """A clock that speeds up by 5 % and settles."""
    return (1 + 0.05 * math.exp(-4 * slot / SPAN) for slot in itertools.count())


def drift(rng: random.Random) -> Iterator[float]:
    """A machine that slows down by 2 %, steadily."""
    return (1 + 0.02 * slot / SPAN for slot in itertools.count())


def wander(rng: random.Random) -> Iterator[float]:
    """A speed that wanders by 2 %, so slowly that what comes soon after is alike."""
    state = rng.gauss(0, 1)
    while True:
        yield math.exp(0.02 * state)
        state = 0.97 * state + math.sqrt(1 - 0.97**2) * rng.gauss(0, 1)


def regimes(rng: random.Random) -> Iterator[float]:
    """Two clocks 8 % apart, changed every eighty samples or so."""
    slow = rng.random() < 0.5
    while True:
        slow ^= rng.random() < 1 / 80
        yield 1.08 if slow else 1.0


def alternation(rng: random.Random) -> Iterator[float]:
    """Every other sample is 2 % slower, whichever it is that comes first."""
    return itertools.cycle(rng.choice(((1.02, 1.0), (1.0, 1.02))))


def position(rng: random.Random) -> Iterator[float]:
    """The second of a pair is 2 % slower."""
    return itertools.cycle((1.0, 1.02))


def interrupted(rng: random.Random) -> Iterator[float]:
    """A core that is taken away in every tenth sample, though it was measured again: it takes up to thirty times as long."""
    while True:
        yield rng.uniform(2.0, 30.0) if rng.random() < 0.1 else 1.0


def neighbours(rng: random.Random) -> Iterator[float]:
    """Cores beside others that are busy or not: both sides of a block go to one, which may be half as fast."""
    while True:
        yield from itertools.repeat(rng.choice((1.0, 1.8)), 2 * PER_BLOCK)


def bursts(rng: random.Random) -> Iterator[float]:
    """Somebody else's work that comes and goes: for some dozens of samples each one takes longer, by as much as it pleases."""
    while True:
        yield from itertools.repeat(1.0, rng.randrange(20, 80))
        yield from (1 + rng.expovariate(2.0) for _ in range(rng.randrange(5, 40)))


# What a CPU does besides.
CPU_MODELS: list[Model] = [interrupted, neighbours, bursts]
MODELS: list[Model] = [independent, outliers, ramp, drift, wander, regimes, alternation, position]


class SimulatedRun:
    """Pairs of a reference that takes 100 µs and a candidate that is `effect` faster."""

    def __init__(self, model: Model, seed: int, effect: float = 0.0) -> None:
        self._rng = random.Random(seed)
        self._noise = model(self._rng)
        self._effect = effect
        self.reference_s: list[float] = []
        self.candidate_s: list[float] = []
        self.orders: list[str] = []

    def measure(self, pairs: int) -> None:
        """Measure so many pairs more."""
        for _ in range(pairs // PER_BLOCK):
            for order in stats.block_orders(PER_BLOCK, self._rng):
                first_s, second_s = self._sample_s(), self._sample_s()
                reference_s, candidate_s = (first_s, second_s) if order == "rc" else (second_s, first_s)
                self.orders.append(order)
                self.reference_s.append(reference_s)
                self.candidate_s.append(candidate_s / (1 + self._effect))

    def measure_until_finished(self) -> list[float]:
        """Measure as long as the rule asks; the log ratios of the blocks."""
        log_ratios: list[float] = []
        while not RULE.is_finished(log_ratios, pairs=len(self.orders), elapsed_s=0.0):
            self.measure(RULE.pairs_wanted(PER_BLOCK, len(self.orders)))
            log_ratios = stats.block_log_ratios(self.reference_s, self.candidate_s, PER_BLOCK)
        return log_ratios

    def timing(self) -> PairedTiming:
        """What the samples say."""
        return stats.compare(self.reference_s, self.candidate_s, per_block=PER_BLOCK, orders=self.orders)

    def _sample_s(self) -> float:
        return 100e-6 * next(self._noise) * self._rng.lognormvariate(0, 0.01)
