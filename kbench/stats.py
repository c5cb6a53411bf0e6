"""Is the candidate faster than the reference, by how much, and how sure is that?

Floats in, floats out: no clock, no device. A *pair* is one sample of the reference and one of the
candidate, taken one after the other in random order; a *block* is a few consecutive pairs, and one
log ratio of medians. Everything is decided on the log ratios of the blocks: what drifts slowly
cancels inside a block, and random order makes their noise symmetric, which is all that the
signed-rank interval asks for.

What stays the same for the life of a process (where its memory lies, above all) cancels in no pair.
Where several pairs of processes were measured, each counts as one sample of that.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

from kbench.records import Comparison

# Blocks before the first look at the interval, and the least that give a 99 % interval at all:
# of n signs, the most extreme pattern has probability 2 / 2^n, which is below 1 % from 8 on.
START_BLOCKS = 10
LEAST_BLOCKS = 8
# An interval shrinks with the root of the blocks: past 100, precision costs more than it is worth.
MOST_BLOCKS = 100
# A kernel too slow for its budget still gets the least blocks for a verdict, but never longer than this.
HARD_LIMIT_S = 20.0
# Pairs to a block by the seconds that one pair takes: short pairs are cheap, and their medians calmer.
_PAIRS_BY_SECONDS = ((0.020, 4), (0.100, 2))
# What is decided is decided at 99 %: the rule looks at the interval more than once, and a run holds many
# candidates.
CONFIDENCE = 0.99
_NOISE_CONFIDENCE = 0.95
# Up to here the signed-rank distribution is counted out; beyond, the normal approximation is as good.
_EXACT_BLOCKS = 25
# A difference below three times what the reference differs from itself is not believed.
_SELF_CHECK_FACTOR = 3.0
# Half-widths of the 95 % interval that separate good, fair and poor.
_GOOD_NOISE = 0.01
_FAIR_NOISE = 0.03
# Scale of the median absolute deviation that equals the standard deviation of a normal distribution.
_MAD_SCALE = 1.4826
# So many spreads from the median is an outlier: one normal sample in two million is.
_OUTLIER_SPREADS = 5.0
# A side with a larger share of outliers was disturbed.
_OUTLIER_SHARE = 0.05
# A reference whose middle half is wider than this share of its median scatters.
_SCATTER = 0.25
# Knowledge of the scatter between processes counts like so many of them beyond the first.
_PLACEMENT_PROCESSES = 6
# Being first or second in a pair must not matter by more than this.
_ORDER_LIMIT = 0.01
_RESAMPLES = 2000
# From here on, a bootstrap of a mean gives the normal interval, and only takes longer.
_BOOTSTRAP_MOST = 200


class Noise(StrEnum):
    """How wide the 95 % interval of a speed-up is."""

    GOOD = "good"
    FAIR = "fair"
    POOR = "poor"


class StopReason(StrEnum):
    """Why no further pair is measured."""

    PRECISE = "precise"
    DECIDED = "decided"
    MOST_BLOCKS = "most_blocks"
    BUDGET = "budget"
    REPEAT = "repeat"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """The bounds of an estimate; infinite where the samples are too few to give any."""

    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the distance of the bounds."""
        return (self.high - self.low) / 2

    def is_beyond(self, limit: float) -> bool:
        """Say whether all of the interval lies above `limit`, or all of it below `-limit`."""
        return self.low > limit or self.high < -limit

    def is_within(self, limit: float) -> bool:
        """Say whether all of the interval lies between `-limit` and `limit`."""
        return -limit <= self.low and self.high <= limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The samples of one side; `spread_s` is the scaled median absolute deviation.

    `median_low_s` and `median_high_s` bound the median at 95 %. Outliers are counted, never dropped.
    """

    n: int
    median_s: float
    median_low_s: float
    median_high_s: float
    spread_s: float
    min_s: float
    q05_s: float
    q25_s: float
    q75_s: float
    q95_s: float
    mean_s: float
    outliers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedTiming:
    """What the pairs say: `speedup` is reference time over candidate time, bounded at 99 %.

    `delta` is the relative difference from which a verdict is given. `self_check` is the log ratio
    of the reference to itself, and `order_effect` that of the first to the second of a pair; None
    where the pairs are too few to tell. `process_speedups` has the speed-up that each pair of
    processes saw, in order, and `inside` the standard error of one of them.
    """

    verdict: Comparison
    speedup: float
    speedup_low: float
    speedup_high: float
    delta: float
    noise: Noise
    blocks: int
    self_check: float | None
    order_effect: float | None
    process_speedups: tuple[float, ...]
    inside: float
    reference: Summary
    candidate: Summary
    flags: tuple[str, ...]

    @property
    def reference_s(self) -> float:
        """The median of the reference's samples."""
        return self.reference.median_s

    @property
    def candidate_s(self) -> float:
        """The median of the candidate's samples."""
        return self.candidate.median_s


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppingRule:
    """Says when enough pairs were measured: when the interval is narrow, never when it is significant.

    Stopping at the first significant look calls one in five equal pairs different; stopping on the
    width of the interval does not. `precision` is the half-width asked for, as a share of the ratio.
    `repeat` fixes the number of pairs instead.
    """

    precision: float
    budget_s: float
    repeat: int | None = None

    def is_finished(self, log_ratios: Sequence[float], *, pairs: int, elapsed_s: float) -> bool:
        """Say whether to stop, given the log ratio of each block so far; see `stop_reason`."""
        return self.stop_reason(log_ratios, pairs=pairs, elapsed_s=elapsed_s) is not None

    def stop_reason(self, log_ratios: Sequence[float], *, pairs: int, elapsed_s: float) -> StopReason | None:
        """Say why to stop, or None to go on."""
        if self.repeat is not None:
            return StopReason.REPEAT if pairs >= self.repeat else None
        blocks = len(log_ratios)
        if blocks and elapsed_s >= max(HARD_LIMIT_S, self.budget_s):
            return StopReason.BUDGET
        if blocks < LEAST_BLOCKS:
            return None
        if elapsed_s >= self.budget_s:
            return StopReason.BUDGET
        if blocks < START_BLOCKS:
            return None
        return self._reason_of_interval(log_ratios)

    def pairs_wanted(self, per_block: int, pairs: int) -> int:
        """Say how many pairs to measure before looking again, when `pairs` are measured.

        The first blocks come one at a time, so that a slow kernel is noticed before its budget is spent.
        """
        if self.repeat is not None:
            return self.repeat - pairs
        blocks = pairs // per_block
        step = 1 if blocks < START_BLOCKS else min(max(2, blocks // 5), MOST_BLOCKS - blocks)
        return step * per_block

    def _reason_of_interval(self, log_ratios: Sequence[float]) -> StopReason | None:
        interval = rank_interval(log_ratios, CONFIDENCE)
        limit = math.log1p(self.precision)
        if interval.half_width <= limit:
            return StopReason.PRECISE
        if interval.is_beyond(limit):
            return StopReason.DECIDED
        return StopReason.MOST_BLOCKS if len(log_ratios) >= MOST_BLOCKS else None


def compare(
    reference_s: Sequence[float],
    candidate_s: Sequence[float],
    *,
    per_block: int,
    orders: Sequence[str],
    precision: float = 0.01,
    resolution_s: float = 0.0,
    processes: Sequence[int] = (),
    placement: float = 0.0,
    seed: int = 0,
) -> PairedTiming:
    """Compare two sides measured in pairs: sample i of each belongs to pair i.

    Samples are positive and finite, at least one a side. `orders` says who went first in each pair:
    `rc` the reference, `cr` the candidate. `resolution_s` is the step of the clock that shows in
    a sample. `processes` has the number of pairs that each pair of processes measured, in order;
    one measured all where it is empty. `placement` is the standard deviation of the log ratio from
    one pair of processes to another, as far as it is known beforehand. `seed` decides how the
    self-check splits the reference's samples, so that the same samples give the same answer.
    """
    parts = [
        _Part.of(reference_s[start:stop], candidate_s[start:stop], orders[start:stop], per_block)
        for start, stop in itertools.pairwise(itertools.accumulate(processes or [len(reference_s)], initial=0))
    ]
    log_ratios = [ratio for part in parts for ratio in part.log_ratios]
    centre = _Centre([_WalshAverages(part.log_ratios) for part in parts], placement)
    self_check = _self_check(parts, random.Random(seed))  # noqa: S311 - a split, not a key
    order_effect = _order_effect(parts)
    reference = summarise(reference_s, resolution_s=resolution_s)
    candidate = summarise(candidate_s, resolution_s=resolution_s)
    step = resolution_s / min(reference.median_s, candidate.median_s)
    delta = max(precision, _SELF_CHECK_FACTOR * abs(self_check.median()) if self_check else 0.0, step)
    noise = noise_class(centre.seen(_NOISE_CONFIDENCE))
    interval = centre.interval(CONFIDENCE)
    shown = interval if math.isfinite(interval.low) else Interval(low=min(log_ratios), high=max(log_ratios))
    return PairedTiming(
        verdict=centre.agreed(verdict(interval, delta, alike=max(precision, step))),
        speedup=math.exp(centre.median()),
        speedup_low=math.exp(shown.low),
        speedup_high=math.exp(shown.high),
        delta=delta,
        noise=noise,
        blocks=len(log_ratios),
        self_check=self_check.median() if self_check else None,
        order_effect=order_effect.median() if order_effect else None,
        process_speedups=tuple(map(math.exp, centre.medians)),
        inside=math.sqrt(centre.inside),
        reference=reference,
        candidate=candidate,
        flags=tuple(_flags(interval, noise, self_check, order_effect, reference, candidate)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What one pair of processes measured."""

    reference_s: Sequence[float]
    candidate_s: Sequence[float]
    orders: Sequence[str]
    per_block: int
    log_ratios: list[float]

    @classmethod
    def of(cls, reference_s: Sequence[float], candidate_s: Sequence[float], orders: Sequence[str], per_block: int) -> _Part:
        per_block = fitted_block_pairs(per_block, len(reference_s))
        log_ratios = block_log_ratios(reference_s, candidate_s, per_block)
        return cls(reference_s=reference_s, candidate_s=candidate_s, orders=orders, per_block=per_block, log_ratios=log_ratios)

    @property
    def blocks(self) -> list[tuple[int, int]]:
        return _blocks(len(self.reference_s), self.per_block)


def _flags(
    interval: Interval,
    noise: Noise,
    self_check: _WalshAverages | None,
    order_effect: _WalshAverages | None,
    reference: Summary,
    candidate: Summary,
) -> list[str]:
    found = {
        "few_pairs": not math.isfinite(interval.low),
        "noise_poor": noise is Noise.POOR,
        "self_check": self_check is not None and self_check.interval(CONFIDENCE).is_beyond(0.0),
        "order_effect": order_effect is not None and order_effect.interval(_NOISE_CONFIDENCE).is_beyond(math.log1p(_ORDER_LIMIT)),
        "reference_outliers": reference.outliers > _OUTLIER_SHARE * reference.n,
        "candidate_outliers": candidate.outliers > _OUTLIER_SHARE * candidate.n,
        "reference_scatters": reference.q75_s - reference.q25_s > _SCATTER * reference.median_s,
    }
    return [name for name, holds in found.items() if holds]


def verdict(interval: Interval, delta: float, *, alike: float | None = None) -> Comparison:
    """Decide by the interval of the log ratio; a relative difference within `delta` is none.

    What is neither clearly different nor clearly the same is unresolved: a wide interval is no
    evidence of equality. `alike` is the difference that still counts as the same, where that is
    not `delta`: a noisy run raises the bar for a difference, and proves no equality by it.
    """
    limit = math.log1p(delta)
    if interval.low > limit:
        return Comparison.FASTER
    if interval.high < -limit:
        return Comparison.SLOWER
    return Comparison.SAME if interval.is_within(math.log1p(delta if alike is None else alike)) else Comparison.UNRESOLVED


def noise_class(interval: Interval) -> Noise:
    """Class a run by the half-width of the 95 % interval of its log ratio."""
    if interval.half_width <= _GOOD_NOISE:
        return Noise.GOOD
    return Noise.FAIR if interval.half_width <= _FAIR_NOISE else Noise.POOR


# Blocks of pairs.


def block_pairs(reference_s: float, candidate_s: float) -> int:
    """Say how many pairs make a block, given the seconds of one sample of each side."""
    pair_s = reference_s + candidate_s
    return next((pairs for limit_s, pairs in _PAIRS_BY_SECONDS if pair_s <= limit_s), 1)


def block_orders(pairs: int, rng: random.Random) -> list[str]:
    """Give each pair of a block its order at random, `rc` and `cr` equally often.

    Equally often, so that being first or second in a pair weighs on both sides of a block alike; at
    random, so that nothing periodic can side with one of them. The odd pair out is tossed for.
    """
    orders = ["rc", "cr"] * (pairs // 2) + [rng.choice(("rc", "cr"))] * (pairs % 2)
    rng.shuffle(orders)
    return orders


def fitted_block_pairs(per_block: int, pairs: int) -> int:
    """Fit the size of a block to a number of pairs that someone else chose.

    A few pairs make smaller blocks, as far as that gives enough of them for a verdict; a great many
    make larger ones, because the interval's cost grows with the square of the blocks.
    """
    return max(min(per_block, pairs // START_BLOCKS), pairs // MOST_BLOCKS, 1)


def block_log_ratio(reference_s: Sequence[float], candidate_s: Sequence[float]) -> float:
    """Give the log ratio of the medians: above zero where the candidate is faster."""
    # A difference of logarithms, so that swapping the sides gives exactly the negative.
    return math.log(median(reference_s)) - math.log(median(candidate_s))


def block_log_ratios(reference_s: Sequence[float], candidate_s: Sequence[float], per_block: int) -> list[float]:
    """Give the log ratio of each block of consecutive pairs; none before the first block is whole."""
    return [block_log_ratio(reference_s[start:stop], candidate_s[start:stop]) for start, stop in _blocks(len(reference_s), per_block)]


def _blocks(pairs: int, per_block: int) -> list[tuple[int, int]]:
    """Start and stop of each block; pairs left over are spread, so that every pair counts."""
    count = pairs // per_block
    return [(i * pairs // count, (i + 1) * pairs // count) for i in range(count)]


def _self_check(parts: Sequence[_Part], rng: random.Random) -> _WalshAverages | None:
    """Compare random halves of the reference's samples in each block: what is seen there is no difference."""
    log_ratios = []
    for part in parts:
        if part.per_block < 2:  # noqa: PLR2004 - one sample has no halves
            return None
        for start, stop in part.blocks:
            samples_s = list(part.reference_s[start:stop])
            rng.shuffle(samples_s)
            half = len(samples_s) // 2
            log_ratios.append(block_log_ratio(samples_s[:half], samples_s[half:]))
    return _WalshAverages(log_ratios) if log_ratios else None


def _order_effect(parts: Sequence[_Part]) -> _WalshAverages | None:
    """Compare first with second in a pair, after taking out the difference of the sides."""
    blocks = []
    for part in parts:
        centre = hodges_lehmann(part.log_ratios)
        effects = [
            (math.log(reference) - math.log(candidate) - centre) * (1 if order == "rc" else -1)
            for reference, candidate, order in zip(part.reference_s, part.candidate_s, part.orders, strict=True)
        ]
        blocks += [math.fsum(effects[start:stop]) / (stop - start) for start, stop in part.blocks]
    return _WalshAverages(blocks) if len(blocks) >= LEAST_BLOCKS else None


# Estimates from symmetric differences.


def hodges_lehmann(differences: Sequence[float]) -> float:
    """Give the median of the Walsh averages (d_i + d_j) / 2, i <= j: the centre, hardly moved by outliers."""
    return _WalshAverages(differences).median()


def rank_interval(differences: Sequence[float], confidence: float) -> Interval:
    """Give the signed-rank interval of the centre; infinite where there are too few differences."""
    return _WalshAverages(differences).interval(confidence)


class _WalshAverages:
    """The sorted averages of all pairs of differences, each with itself too; made once, asked often."""

    def __init__(self, differences: Sequence[float]) -> None:
        self._n = len(differences)
        ordered = sorted(differences)
        # Sums, halved only where one is read; the runs are sorted already, which the sort makes use of.
        self._sums = [x + y for i, x in enumerate(ordered) for y in ordered[i:]]
        self._sums.sort()

    def median(self) -> float:
        return _median_of_sorted(self._sums) / 2

    def interval(self, confidence: float) -> Interval:
        rank = _signed_rank(self._n, confidence)
        if rank < 1:
            return Interval(low=-math.inf, high=math.inf)
        return Interval(low=self._sums[rank - 1] / 2, high=self._sums[-rank] / 2)

    def variance(self) -> float:
        """Give that of the median, by its 95 % interval; infinite where there is none."""
        return (self.interval(_NOISE_CONFIDENCE).half_width / NormalDist().inv_cdf(0.5 + _NOISE_CONFIDENCE / 2)) ** 2


class _Centre:
    """The log ratio over all pairs of processes.

    One pair of processes has the rank interval of its blocks. Several have Student's interval of what
    each saw, because blocks of one process share what that process got. What is known beforehand of the
    scatter between processes counts like so many of them (Smyth 2004, Statistical Applications in
    Genetics and Molecular Biology 3: a moderated t), so that one, or a few by chance alike, are not
    believed beyond it.
    """

    def __init__(self, parts: Sequence[_WalshAverages], placement: float) -> None:
        self._parts = parts
        self._placement = placement
        self.medians = [part.median() for part in parts]
        self.inside = math.fsum(part.variance() for part in parts) / len(parts)

    def median(self) -> float:
        return self.medians[0] if len(self.medians) == 1 else math.fsum(self.medians) / len(self.medians)

    def seen(self, confidence: float) -> Interval:
        """The interval by what was measured alone: how calm the clock was."""
        return self._parts[0].interval(confidence) if len(self._parts) == 1 else self.interval(confidence)

    def agreed(self, found: Comparison) -> Comparison:
        """Take a difference back that not every pair of processes saw."""
        against = {Comparison.FASTER: min(self.medians) <= 0, Comparison.SLOWER: max(self.medians) >= 0}
        return Comparison.UNRESOLVED if against.get(found) else found

    def interval(self, confidence: float) -> Interval:
        known = _PLACEMENT_PROCESSES if self._placement else 0
        count = len(self._parts)
        if count == 1:
            within = self._parts[0].interval(confidence)
            if not known:
                return within
            reach = student_t(confidence, known) * self._placement
            centre = self.median()
            return Interval(low=centre - math.hypot(centre - within.low, reach), high=centre + math.hypot(within.high - centre, reach))
        centre = self.median()
        inside = self.inside
        seen = math.fsum((x - centre) ** 2 for x in self.medians)
        expected = known * (self._placement**2 + inside) if known and math.isfinite(inside) else 0.0
        known = known if expected else 0
        variance = max((expected + seen) / (known + count - 1), inside if math.isfinite(inside) else 0.0)
        reach = student_t(confidence, known + count - 1) * math.sqrt(variance / count)
        return Interval(low=centre - reach, high=centre + reach)


@functools.cache
def _signed_rank(n: int, confidence: float) -> int:
    """Rank, from either end, of the Walsh average that bounds the centre; 0 where none does."""
    tail = (1 - confidence) / 2
    if n > _EXACT_BLOCKS:
        z = NormalDist().inv_cdf(1 - tail)
        return math.floor(n * (n + 1) / 4 - z * math.sqrt(n * (n + 1) * (2 * n + 1) / 24))
    at_most = itertools.accumulate(_signed_rank_counts(n))
    return sum(count <= tail * 2**n for count in at_most)


@functools.cache
def _signed_rank_counts(n: int) -> list[int]:
    """How many of the 2^n sign patterns give each rank sum 0 .. n(n+1)/2."""
    counts = [1]
    for rank in range(1, n + 1):
        padded = counts + [0] * rank
        counts = [count + (padded[i - rank] if i >= rank else 0) for i, count in enumerate(padded)]
    return counts


# One side's samples.


def summarise(samples_s: Sequence[float], *, resolution_s: float = 0.0) -> Summary:
    """Summarise the samples of one side, of which there is at least one."""
    ordered = sorted(samples_s)
    middle_s = _median_of_sorted(ordered)
    spread = spread_s(ordered)
    # Samples of a coarse clock are often all equal but for one step, which is no outlier.
    limit_s = _OUTLIER_SPREADS * max(spread, resolution_s)
    interval = median_interval(ordered, _NOISE_CONFIDENCE)
    return Summary(
        n=len(ordered),
        median_s=middle_s,
        median_low_s=interval.low,
        median_high_s=interval.high,
        spread_s=spread,
        min_s=ordered[0],
        q05_s=quantile(ordered, 0.05),
        q25_s=quantile(ordered, 0.25),
        q75_s=quantile(ordered, 0.75),
        q95_s=quantile(ordered, 0.95),
        mean_s=math.fsum(ordered) / len(ordered),
        outliers=sum(abs(sample_s - middle_s) > limit_s for sample_s in ordered),
    )


def median(values: Sequence[float]) -> float:
    """Give the middle value, or the mean of the two in the middle."""
    return _median_of_sorted(sorted(values))


def _median_of_sorted(ordered: Sequence[float]) -> float:
    half = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[half]
    return (ordered[half - 1] + ordered[half]) / 2


def spread_s(samples_s: Sequence[float]) -> float:
    """Give the median absolute deviation, scaled to the standard deviation of normal samples."""
    middle_s = median(samples_s)
    return _MAD_SCALE * median([abs(sample_s - middle_s) for sample_s in samples_s])


def quantile(values: Sequence[float], share: float) -> float:
    """Give the value below which `share` of the values lie, interpolated between neighbours."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def median_interval(values: Sequence[float], confidence: float) -> Interval:
    """Give the order-statistics interval of the median; the whole range where there are too few values."""
    ordered = sorted(values)
    rank = max(_median_rank(len(ordered), confidence), 1)
    return Interval(low=ordered[rank - 1], high=ordered[-rank])


@functools.cache
def _median_rank(n: int, confidence: float) -> int:
    """Rank, from either end, of the value that bounds the median; 0 where none does."""
    tail = (1 - confidence) / 2
    if n > MOST_BLOCKS:
        return math.floor(n / 2 - NormalDist().inv_cdf(1 - tail) * math.sqrt(n) / 2)
    at_most = itertools.accumulate(math.comb(n, k) for k in range(n))
    return sum(count <= tail * 2**n for count in at_most)


# Several processes.


def student_t(confidence: float, freedom: int) -> float:
    """Give the two-sided quantile of Student's t with `freedom` degrees of freedom, 1 or more."""
    low, high = 0.0, 1.0
    while _within_t(high, freedom) < confidence:
        low, high = high, 2 * high
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _within_t(middle, freedom) < confidence else (low, middle)
    return (low + high) / 2


def _within_t(t: float, freedom: int) -> float:
    """The probability of |T| <= t. Source: Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine = math.cos(angle)
    odd = freedom % 2
    total = term = cosine if odd else 1.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    if not odd:
        return math.sin(angle) * total
    return 2 / math.pi * (angle + (math.sin(angle) * total if freedom > 1 else 0.0))


# Many candidates.


def geometric_mean(ratios: Sequence[float]) -> float:
    """Give the geometric mean: the only mean of ratios that inverts when they all do."""
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))


def geometric_mean_interval(ratios: Sequence[float], confidence: float, rng: random.Random) -> Interval:
    """Bound the geometric mean over the ratios that might have been drawn instead of these."""
    logs = [math.log(ratio) for ratio in ratios]
    n = len(logs)
    tail = (1 - confidence) / 2
    if n > _BOOTSTRAP_MOST:
        centre = math.fsum(logs) / n
        error = math.sqrt(math.fsum((x - centre) ** 2 for x in logs) / (n - 1) / n)
        reach = NormalDist().inv_cdf(1 - tail) * error
        return Interval(low=math.exp(centre - reach), high=math.exp(centre + reach))
    means = sorted(math.fsum(rng.choices(logs, k=n)) / n for _ in range(_RESAMPLES))
    return Interval(low=math.exp(quantile(means, tail)), high=math.exp(quantile(means, 1 - tail)))
