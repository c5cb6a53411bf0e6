"""The statistics against values worked out by hand, against properties, and against simulated noise."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks.noise import CPU_MODELS, MODELS, PER_BLOCK, RULE, Model, SimulatedRun, independent, regimes
from kbench import stats
from kbench.records import Comparison
from kbench.stats import Interval, Noise, PairedTiming, StoppingRule, StopReason

# How long an example takes says nothing on a busy machine.
UNHURRIED = settings(deadline=None, max_examples=50)
SECONDS = st.floats(1e-7, 10.0)
DIFFERENCES = st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=30)


# One side's samples.


def test_the_median_is_the_middle_or_the_mean_of_the_middle_two() -> None:
    assert stats.median([3.0, 1.0, 2.0]) == 2.0
    assert stats.median([4.0, 1.0, 2.0, 3.0]) == 2.5
    assert stats.median([7.0]) == 7.0


def test_quantiles_are_interpolated_between_neighbours() -> None:
    values = [10.0, 20.0, 30.0, 40.0, 50.0]

    assert [stats.quantile(values, share) for share in (0.0, 0.25, 0.6, 1.0)] == [10.0, 20.0, 34.0, 50.0]


def test_the_spread_ignores_one_wild_sample() -> None:
    assert stats.spread_s([1.0, 2.0, 3.0, 4.0, 100.0]) == pytest.approx(1.4826)


@pytest.mark.parametrize(
    ("count", "confidence", "low", "high"),
    [
        # The fewest values for 95 %: 1 - 2 / 2^6 = 96.9 %.
        (6, 0.95, 1, 6),
        (10, 0.95, 2, 9),
        (20, 0.95, 6, 15),
        (100, 0.95, 40, 61),
        (400, 0.95, 180, 221),
        # Too few for any: the whole range.
        (4, 0.95, 1, 4),
    ],
)
def test_the_median_lies_between_tabulated_order_statistics(count: int, confidence: float, low: int, high: int) -> None:
    assert stats.median_interval(range(1, count + 1), confidence) == Interval(low=low, high=high)


def test_a_summary_counts_outliers_and_keeps_them() -> None:
    samples_s = [1.00, 1.01, 0.99, 1.02, 0.98, 5.0]

    summary = stats.summarise(samples_s)

    assert summary.outliers == 1
    assert summary.n == 6
    assert summary.min_s == 0.98
    assert summary.mean_s == pytest.approx(10.0 / 6)
    assert summary.median_s == pytest.approx(1.005)


def test_one_step_of_a_coarse_clock_is_no_outlier() -> None:
    """More than half of the samples are equal, so that the spread is zero."""
    samples_s = [3.0] * 8 + [4.0, 9.0]

    assert stats.summarise(samples_s, resolution_s=1.0).outliers == 1
    assert stats.summarise(samples_s).outliers == 2


@UNHURRIED
@given(st.lists(SECONDS, min_size=1, max_size=50))
def test_the_figures_of_a_summary_are_in_order(samples_s: list[float]) -> None:
    summary = stats.summarise(samples_s)

    figures = [summary.min_s, summary.q05_s, summary.q25_s, summary.median_s, summary.q75_s, summary.q95_s]
    assert figures == sorted(figures)
    assert summary.median_low_s <= summary.median_s <= summary.median_high_s


# The centre of symmetric differences.


def test_hodges_lehmann_is_the_median_of_all_pairwise_means() -> None:
    """Of 1, 2, 6: the means are 1, 1.5, 2, 3.5, 4, 6."""
    assert stats.hodges_lehmann([6.0, 1.0, 2.0]) == 2.75


@pytest.mark.parametrize(
    ("n", "confidence", "critical"),
    # Critical values of Wilcoxon's signed-rank statistic, two-sided, as tables print them.
    [
        (8, 0.99, 0),
        (8, 0.95, 3),
        (10, 0.95, 8),
        (10, 0.99, 3),
        (20, 0.95, 52),
        (20, 0.99, 37),
        (25, 0.95, 89),
    ],
)
def test_the_rank_interval_starts_after_the_tabulated_critical_value(n: int, confidence: float, critical: int) -> None:
    differences = [float(2**i) for i in range(n)]
    averages = sorted((x + y) / 2 for x, y in itertools.combinations_with_replacement(differences, 2))

    interval = stats.rank_interval(differences, confidence)

    assert interval == Interval(low=averages[critical], high=averages[-1 - critical])


def test_the_approximation_takes_over_where_the_table_ends() -> None:
    """With 26 differences the table gives rank 99 of 351 at 95 %, and the approximation agrees within one."""
    rng = random.Random(1)
    differences = [rng.gauss(0, 1) for _ in range(26)]
    averages = sorted((x + y) / 2 for x, y in itertools.combinations_with_replacement(differences, 2))

    low = stats.rank_interval(differences, 0.95).low

    assert averages.index(low) + 1 in (98, 99, 100)


def test_seven_differences_give_no_interval_at_99_percent() -> None:
    assert stats.rank_interval([0.1] * 7, 0.99) == Interval(low=-math.inf, high=math.inf)
    assert stats.rank_interval([0.1] * 8, 0.99) == Interval(low=0.1, high=0.1)


@UNHURRIED
@given(DIFFERENCES)
def test_turning_every_difference_round_turns_the_interval_round(differences: list[float]) -> None:
    interval = stats.rank_interval(differences, 0.99)
    turned = stats.rank_interval([-d for d in differences], 0.99)

    assert (turned.low, turned.high) == (-interval.high, -interval.low)
    assert stats.hodges_lehmann([-d for d in differences]) == -stats.hodges_lehmann(differences)
    assert interval.low <= stats.hodges_lehmann(differences) <= interval.high


# The verdict.


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.011, 0.5, Comparison.FASTER),
        (-0.5, -0.011, Comparison.SLOWER),
        (-0.009, 0.009, Comparison.SAME),
        # Significant, and too small to matter.
        (0.002, 0.004, Comparison.SAME),
        # Touches what matters on either side: nothing can be said, least of all "no change".
        (0.005, 0.02, Comparison.UNRESOLVED),
        (-0.2, 0.2, Comparison.UNRESOLVED),
        (-math.inf, math.inf, Comparison.UNRESOLVED),
    ],
)
def test_a_verdict_needs_the_whole_interval(low: float, high: float, expected: Comparison) -> None:
    assert stats.verdict(Interval(low=low, high=high), 0.01) is expected


@pytest.mark.parametrize(
    ("half_width", "noise"),
    [(0.01, Noise.GOOD), (0.02, Noise.FAIR), (0.031, Noise.POOR), (math.inf, Noise.POOR)],
)
def test_noise_is_classed_by_the_width_of_the_interval(half_width: float, noise: Noise) -> None:
    assert stats.noise_class(Interval(low=-half_width, high=half_width)) is noise


def pairs_of(reference_s: list[float], candidate_s: list[float], resolution_s: float = 0.0) -> PairedTiming:
    orders = ["rc", "cr"] * len(reference_s)
    return stats.compare(reference_s, candidate_s, per_block=4, orders=orders[: len(reference_s)], resolution_s=resolution_s)


def test_half_the_time_is_twice_the_speed() -> None:
    timing = pairs_of([2e-3] * 40, [1e-3] * 40)

    assert timing.verdict is Comparison.FASTER
    assert timing.speedup == timing.speedup_low == timing.speedup_high == pytest.approx(2.0)
    assert (timing.reference_s, timing.candidate_s) == (2e-3, 1e-3)
    assert timing.flags == ()


def test_a_reference_that_differs_from_itself_raises_the_bar() -> None:
    """A 3 % gain over a reference that scatters by 30 % from one sample to the next is not called."""
    rng = random.Random(3)
    reference_s = [1e-3 * rng.lognormvariate(0, 0.3) for _ in range(80)]
    candidate_s = [sample_s / 1.03 for sample_s in reference_s]

    noisy = pairs_of(reference_s, candidate_s)
    calm = pairs_of([1e-3] * 80, [1e-3 / 1.03] * 80)

    assert calm.verdict is Comparison.FASTER
    assert calm.delta == 0.01
    assert noisy.self_check is not None
    assert noisy.delta == pytest.approx(3 * abs(noisy.self_check))
    assert noisy.verdict is not Comparison.FASTER


def test_a_run_too_noisy_to_tell_is_never_the_same() -> None:
    """What the reference differs from itself raises the bar for a difference, and proves no equality by it."""
    rng = random.Random(3)
    reference_s = [1e-3 * rng.lognormvariate(0, 0.3) for _ in range(80)]
    candidate_s = [sample_s * rng.lognormvariate(0, 0.02) for sample_s in reference_s]

    timing = pairs_of(reference_s, candidate_s)

    assert 1 - timing.delta < timing.speedup_low < 0.99
    assert timing.speedup_high < 1 + timing.delta
    assert timing.verdict is Comparison.UNRESOLVED


def test_a_difference_below_the_step_of_the_clock_is_not_called() -> None:
    """Two adjacent readings of a clock that steps by 32 ns are 1.6 % apart at 2 µs."""
    timing = pairs_of([2.032e-6] * 40, [2.000e-6] * 40, resolution_s=32e-9)

    assert timing.delta == pytest.approx(0.016)
    assert timing.verdict is Comparison.SAME
    assert pairs_of([2.032e-6] * 40, [2.000e-6] * 40).verdict is Comparison.FASTER


def test_few_pairs_give_a_ratio_and_no_verdict() -> None:
    timing = pairs_of([2.0, 2.0, 2.2], [1.0, 1.0, 1.0])

    assert timing.verdict is Comparison.UNRESOLVED
    assert "few_pairs" in timing.flags
    assert timing.speedup == pytest.approx(2.05, abs=0.06)
    assert timing.speedup_low == pytest.approx(2.0)
    assert timing.speedup_high == pytest.approx(2.2)


def test_a_single_pair_gives_a_ratio() -> None:
    timing = pairs_of([3.0], [1.5])

    assert timing.speedup == pytest.approx(2.0)
    assert timing.verdict is Comparison.UNRESOLVED


def test_a_second_place_that_costs_is_flagged_and_moves_nothing() -> None:
    """Whoever runs second takes 5 % longer; both orders occur equally often in each block."""
    reference_s = [1.00, 1.05] * 20
    candidate_s = [1.05, 1.00] * 20

    timing = pairs_of(reference_s, candidate_s)

    assert "order_effect" in timing.flags
    assert timing.order_effect == pytest.approx(-math.log(1.05))
    assert timing.speedup == pytest.approx(1.0)


def test_a_reference_that_scatters_is_flagged() -> None:
    timing = pairs_of([1.0, 1.0, 9.0, 9.0] * 10, [1.0] * 40)

    assert "reference_scatters" in timing.flags


@UNHURRIED
@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=40))
def test_swapping_the_sides_inverts_ratio_and_interval(samples: list[tuple[float, float]]) -> None:
    reference_s, candidate_s = map(list, zip(*samples, strict=True))

    one, other = pairs_of(reference_s, candidate_s), pairs_of(candidate_s, reference_s)

    assert one.speedup * other.speedup == pytest.approx(1.0)
    assert one.speedup_low * other.speedup_high == pytest.approx(1.0)
    assert one.speedup_low <= one.speedup * (1 + 1e-12)
    assert one.speedup <= one.speedup_high * (1 + 1e-12)


@UNHURRIED
@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=40), st.sampled_from([2.0**-10, 2.0, 2.0**20]))
def test_the_unit_of_time_does_not_matter(samples: list[tuple[float, float]], unit: float) -> None:
    reference_s, candidate_s = map(list, zip(*samples, strict=True))

    scaled = pairs_of([s * unit for s in reference_s], [s * unit for s in candidate_s])

    assert scaled.speedup == pytest.approx(pairs_of(reference_s, candidate_s).speedup)
    assert scaled.candidate_s == pairs_of(reference_s, candidate_s).candidate_s * unit


# Several processes.


@pytest.mark.parametrize(
    ("confidence", "freedom", "quantile"),
    # Two-sided, as tables print them.
    [(0.99, 1, 63.657), (0.99, 2, 9.925), (0.95, 3, 3.182), (0.95, 4, 2.776), (0.99, 9, 3.250), (0.99, 30, 2.750)],
)
def test_student_t_is_as_tabulated(confidence: float, freedom: int, quantile: float) -> None:
    assert stats.student_t(confidence, freedom) == pytest.approx(quantile, abs=5e-4)


def processes_of(rng: random.Random, count: int, *, scatter: float, effect: float = 0.0, known: float = 0.0) -> PairedTiming:
    """What `count` pairs of processes measure, each tight about a value of its own."""
    reference_s: list[float] = []
    candidate_s: list[float] = []
    for _ in range(count):
        own = effect + rng.gauss(0, scatter)
        reference_s += [rng.lognormvariate(0, 0.001) for _ in range(40)]
        candidate_s += [rng.lognormvariate(0, 0.001) / math.exp(own) for _ in range(40)]
    orders = ["rc", "cr"] * (20 * count)
    return stats.compare(reference_s, candidate_s, per_block=4, orders=orders, processes=[40] * count, placement=known)


@pytest.mark.parametrize("count", [2, 3, 8])
def test_the_interval_counts_what_differs_from_process_to_process(count: int) -> None:
    """300 runs whose processes scatter by 2 % about no difference; samples within a process by 0.1 %."""
    rng = random.Random(count)
    timings = [processes_of(rng, count, scatter=0.02) for _ in range(300)]

    assert sum(timing.speedup_low <= 1 <= timing.speedup_high for timing in timings) >= 292
    assert sum(timing.verdict in (Comparison.FASTER, Comparison.SLOWER) for timing in timings) <= 3


@pytest.mark.parametrize(("count", "width"), [(1, 0.065), (2, 0.04), (4, 0.025)])
def test_a_scatter_that_is_known_makes_few_processes_worth_more(count: int, width: float) -> None:
    """One pair of processes is believed no further than others were seen to scatter, and two are not thrown away."""
    rng = random.Random(count)
    timings = [processes_of(rng, count, scatter=0.005, known=0.005) for _ in range(300)]

    assert sum(timing.speedup_low <= 1 <= timing.speedup_high for timing in timings) >= 292
    widths = sorted(timing.speedup_high - timing.speedup_low for timing in timings)
    assert widths[150] < width


def test_a_difference_that_not_every_process_sees_is_not_called() -> None:
    faster = [1.0] * 40
    timing = stats.compare(
        faster * 8,
        [s / 1.10 for s in faster * 7] + [s / 0.999 for s in faster],
        per_block=4,
        orders=["rc", "cr"] * 160,
        processes=[40] * 8,
    )

    assert timing.speedup_low > 1.01
    assert timing.verdict is Comparison.UNRESOLVED


# Blocks.


@pytest.mark.parametrize(
    ("reference_s", "candidate_s", "pairs"),
    [(5e-6, 5e-6, 4), (0.01, 0.01, 4), (0.05, 0.05, 2), (0.09, 0.02, 1)],
)
def test_slower_pairs_make_smaller_blocks(reference_s: float, candidate_s: float, pairs: int) -> None:
    assert stats.block_pairs(reference_s, candidate_s) == pairs


@pytest.mark.parametrize(
    ("asked", "pairs", "fitted"),
    [
        (4, 40, 4),
        (4, 400, 4),
        # Few pairs: smaller blocks, so that there are ten of them where possible.
        (4, 10, 1),
        (4, 25, 2),
        (4, 3, 1),
        # Very many pairs: the blocks grow instead of their number.
        (4, 5000, 50),
        (1, 1000, 10),
    ],
)
def test_blocks_fit_the_number_of_pairs(asked: int, pairs: int, fitted: int) -> None:
    assert stats.fitted_block_pairs(asked, pairs) == fitted


def test_left_over_pairs_are_spread_over_the_blocks() -> None:
    reference_s = [2.0] * 9 + [8.0, 8.0]
    log_ratios = stats.block_log_ratios(reference_s, [1.0] * 11, 4)

    assert log_ratios == pytest.approx([math.log(2.0), math.log(2.0)])
    assert stats.block_log_ratios([1.0] * 3, [1.0] * 3, 4) == []


@UNHURRIED
@given(st.integers(0, 40), st.integers(0, 10))
def test_both_orders_are_equally_often_in_a_block(pairs: int, seed: int) -> None:
    orders = stats.block_orders(pairs, random.Random(seed))

    assert len(orders) == pairs
    assert abs(orders.count("rc") - orders.count("cr")) == pairs % 2


def test_the_order_in_a_block_is_random() -> None:
    rng = random.Random(0)

    assert {tuple(stats.block_orders(4, rng)) for _ in range(200)} == set(itertools.permutations(["rc", "rc", "cr", "cr"]))
    assert {tuple(stats.block_orders(1, rng)) for _ in range(50)} == {("rc",), ("cr",)}


# When to stop.

QUIET = [0.0001 * (-1) ** i for i in range(10)]
LOUD = [0.05 * (-1) ** (i // 2) * (i % 3) for i in range(10)]


@pytest.mark.parametrize(
    ("log_ratios", "elapsed_s", "reason"),
    [
        (QUIET, 0.1, StopReason.PRECISE),
        (QUIET[:9], 0.1, None),
        (LOUD, 0.1, None),
        ([0.5 + d for d in LOUD], 0.1, StopReason.DECIDED),
        # Significant but near: a small difference never ends a run, only a narrow interval does.
        ([0.055 + d for d in LOUD], 0.1, None),
        (LOUD * 10, 0.1, StopReason.MOST_BLOCKS),
        (LOUD, 2.0, StopReason.BUDGET),
        # Eight blocks are owed even to a kernel that is slower than the budget,
        (LOUD[:7], 19.0, None),
        (LOUD[:8], 19.0, StopReason.BUDGET),
        # but not for longer than this.
        (LOUD[:1], 20.0, StopReason.BUDGET),
        ([], 30.0, None),
    ],
)
def test_when_measuring_stops(log_ratios: list[float], elapsed_s: float, reason: StopReason | None) -> None:
    assert RULE.stop_reason(log_ratios, pairs=4 * len(log_ratios), elapsed_s=elapsed_s) is reason


def test_more_blocks_come_in_growing_steps() -> None:
    blocks = [0]
    while blocks[-1] < 100:
        blocks.append(blocks[-1] + RULE.pairs_wanted(4, 4 * blocks[-1]) // 4)

    assert blocks[:11] == list(range(11))
    assert blocks[11:] == [12, 14, 16, 19, 22, 26, 31, 37, 44, 52, 62, 74, 88, 100]


def test_a_number_of_pairs_that_was_asked_for_is_exact() -> None:
    rule = StoppingRule(precision=0.01, budget_s=2.0, repeat=50)

    assert rule.pairs_wanted(4, 0) == 50
    assert not rule.is_finished(QUIET, pairs=49, elapsed_s=99.0)
    assert rule.is_finished([], pairs=50, elapsed_s=0.0)


# Many candidates.


def test_the_mean_of_a_double_and_a_half_is_one() -> None:
    assert stats.geometric_mean([2.0, 0.5]) == pytest.approx(1.0)


@pytest.mark.parametrize("count", [20, 1000])
def test_the_interval_of_the_mean_holds_the_truth_as_often_as_it_says(count: int) -> None:
    """By resampling for few ratios, by the normal approximation for many."""
    rng = random.Random(5)
    held = 0
    for _ in range(40):
        ratios = [rng.lognormvariate(math.log(1.5), 0.3) for _ in range(count)]
        interval = stats.geometric_mean_interval(ratios, 0.95, rng)
        held += interval.low <= 1.5 <= interval.high

    assert 34 <= held <= 40


# Simulated noise.


@pytest.mark.parametrize("model", MODELS)
def test_equal_work_is_hardly_ever_called_different(
    model: Model,
) -> None:
    """400 runs with the full stopping rule: repeated looks must not be paid for with false verdicts."""
    called = held_95 = held_99 = 0
    for seed in range(400):
        run = SimulatedRun(model, seed)
        interval = stats.rank_interval(run.measure_until_finished(), 0.95)
        timing = run.timing()
        called += timing.verdict in (Comparison.FASTER, Comparison.SLOWER)
        held_95 += interval.low <= 0 <= interval.high
        held_99 += timing.speedup_low <= 1 <= timing.speedup_high

    assert called <= 4
    assert held_95 >= 368
    assert held_99 >= 392


@pytest.mark.parametrize("model", CPU_MODELS)
def test_equal_work_on_a_busy_cpu_is_never_called_different(model: Model) -> None:
    """100 runs as a shared machine makes them: wide where it must be, and not wrong."""
    called = held = 0
    errors = []
    for seed in range(100):
        run = SimulatedRun(model, seed)
        run.measure_until_finished()
        timing = run.timing()
        called += timing.verdict in (Comparison.FASTER, Comparison.SLOWER)
        held += timing.speedup_low <= 1 <= timing.speedup_high
        errors.append(abs(timing.speedup - 1))

    assert called <= 1
    assert held >= 95
    assert sorted(errors)[50] <= 0.005


@pytest.mark.parametrize("model", MODELS)
def test_two_percent_is_called_and_a_third_of_a_percent_is_not(
    model: Model,
) -> None:
    """200 runs of forty blocks at 1 % of scatter; 100 for the effect that is too small to call."""
    verdicts = []
    for seed, effect in [(seed, 0.02) for seed in range(200)] + [(seed, 0.003) for seed in range(100)]:
        run = SimulatedRun(model, seed, effect)
        run.measure(40 * PER_BLOCK)
        verdicts.append(run.timing().verdict)

    assert verdicts[:200].count(Comparison.FASTER) >= 180
    assert verdicts[200:].count(Comparison.FASTER) + verdicts[200:].count(Comparison.SLOWER) <= 1


def test_one_percent_of_scatter_is_settled_in_twenty_blocks() -> None:
    blocks = sorted(len(SimulatedRun(independent, seed).measure_until_finished()) for seed in range(200))

    assert blocks[180] <= 20


def test_the_same_seed_gives_the_same_run() -> None:
    one, other = SimulatedRun(regimes, 7), SimulatedRun(regimes, 7)
    one.measure_until_finished()
    other.measure_until_finished()

    assert one.timing() == other.timing()


@UNHURRIED
@given(DIFFERENCES, st.floats(-1.0, 1.0))
def test_shifting_every_difference_shifts_the_centre(differences: list[float], shift: float) -> None:
    assume(len(differences) > 1)

    moved = stats.hodges_lehmann([d + shift for d in differences])

    assert moved == pytest.approx(stats.hodges_lehmann(differences) + shift, abs=1e-9)
