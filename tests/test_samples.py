"""What follows from raw samples: the same for a fresh measurement, for several processes, and for a report."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kbench import samples


def measured(effect: float = 0.0, *, pairs: int = 40, seed: int = 0, **more: Any) -> dict[str, Any]:
    """Samples of a reference of 100 µs and a candidate that is `effect` faster, with 0.2 % of scatter."""
    rng = random.Random(seed)
    side_s = [[100e-6 * rng.lognormvariate(0, 0.002) for _ in range(pairs)] for _ in range(2)]
    return {
        "format": samples.FORMAT,
        "pairs_a_block": 4,
        "orders": [rng.choice(("rc", "cr")) for _ in range(pairs)],
        "reference_s": side_s[0],
        "candidate_s": [s / (1 + effect) for s in side_s[1]],
        "reference_reports": [{} for _ in range(pairs)],
        "candidate_reports": [{} for _ in range(pairs)],
        "reference_wall_s": [120e-6] * 5,
        "candidate_wall_s": [115e-6] * 5,
        "flags": [],
        **more,
    }


def test_a_verdict_and_its_medians_follow() -> None:
    concluded = samples.conclude(measured(0.05))

    assert concluded["verdict"] == "faster"
    assert concluded["speedup_low"] < 1.05 < concluded["speedup_high"]
    assert (concluded["pairs"], concluded["reference_wall_s"]) == (40, 120e-6)


@pytest.mark.parametrize(
    ("change", "flag"),
    [
        ({"candidate_reports": [{"hidden": 0.0}] + [{"hidden": 1.0}] * 39}, "host_bound"),
        ({"reference_reports": [{"hidden": 0.0}] + [{"hidden": 1.0}] * 39}, "reference_host_bound"),
        ({"candidate_reports": [{"preemptions": 1.0}] * 3 + [{}] * 37}, "preempted"),
        ({"reference_reports": [{"sm_clock_hz": 1.2e9}] * 10 + [{"sm_clock_hz": 1.9e9}] * 30}, "unsteady_clock"),
        ({"stolen_share": 0.02}, "noisy_host"),
        ({"floor_s": 80e-6}, "at_launch_floor"),
        ({"floor_s": 1e-6, "candidate_wall_s": [1.2e-3] * 5}, "slow_launch"),
        ({"flags": ["throttled"]}, "throttled"),
    ],
)
def test_what_happened_meanwhile_is_flagged(change: dict[str, Any], flag: str) -> None:
    assert samples.conclude(measured())["flags"] == []
    assert samples.conclude(measured(**change))["flags"] == [flag]


CHAINS = {
    "chains": [1, 3, 6],
    "calls": [2, 10],
    # Two calls of 50 us and ten of 10 us, each chain 20 us longer for what launches it.
    "reference_s": [[120e-6, 320e-6, 620e-6]] * 12,
    "candidate_s": [[120e-6, 320e-6, 620e-6]] * 12,
}


def test_a_call_of_a_chain_is_the_slope_without_what_launches_it() -> None:
    extra = samples.conclude(measured(graph=CHAINS))["extra"]

    assert (extra["reference_graph_s"], extra["candidate_graph_s"]) == (pytest.approx(50e-6), pytest.approx(10e-6))
    assert extra["graph_speedup"] == pytest.approx(5.0)
    assert extra["graph_speedup_low"] == pytest.approx(5.0)
    assert "reference_stream_s" not in extra


@pytest.mark.parametrize(
    "spoilt",
    [{}, {**CHAINS, "calls": [2]}, {**CHAINS, "calls": [0, 1]}, {**CHAINS, "reference_s": [[1, 2]] * 11}, {**CHAINS, "candidate_s": [[3, 2, 1]] * 12}],
)
def test_what_is_no_chain_is_refused(spoilt: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"`graph`|does not grow"):
        samples.conclude(measured(graph=spoilt))


def test_time_that_does_not_grow_with_the_calls_alike_is_not_linear() -> None:
    assert samples.is_linear((1, 3, 6), CHAINS["reference_s"])
    assert not samples.is_linear((1, 3, 6), [[120e-6, 320e-6, 700e-6]] * 12)


def test_processes_that_disagree_widen_the_interval() -> None:
    """Each pair of processes is tight about another value: the interval of one alone misses the truth."""
    effects = [0.04, -0.03, 0.01, -0.02, 0.03, -0.03]
    parts = [measured(effect, seed=seed) for seed, effect in enumerate(effects)]

    alone = samples.conclude(parts[0])
    together = samples.conclude(samples.joined(parts))

    assert alone["verdict"] == "faster"
    assert together["verdict"] == "unresolved"
    assert together["speedup_low"] < 1 < together["speedup_high"]
    assert together["pairs"] == 240
    assert together["extra"]["process_speedups"] == pytest.approx([1 + effect for effect in effects], abs=0.003)


def test_what_was_joined_is_taken_apart_again() -> None:
    parts = [measured(effect, seed=seed) for seed, effect in enumerate([0.01, 0.05, 0.10])]

    again = samples.parted(samples.joined(parts))

    assert [part["candidate_s"] for part in again] == [part["candidate_s"] for part in parts]
    assert [samples.conclude(part)["speedup"] for part in again] == [samples.conclude(part)["speedup"] for part in parts]


def test_processes_that_agree_give_their_verdict() -> None:
    concluded = samples.conclude(samples.joined([measured(0.05, seed=seed) for seed in range(6)]))

    assert concluded["verdict"] == "faster"
    assert 1.04 < concluded["speedup_low"] < 1.05 < concluded["speedup_high"] < 1.06


def test_what_is_unknown_of_other_processes_is_no_noise_of_the_clock() -> None:
    concluded = samples.conclude(measured(0.05, placement=0.03))

    assert concluded["speedup_high"] - concluded["speedup_low"] > 0.1
    assert concluded["flags"] == []


def test_a_clear_difference_asks_for_no_further_processes() -> None:
    assert samples.is_settled(measured(1.0, placement=0.01))


def test_a_difference_that_placement_could_make_asks_for_further_processes_until_they_agree() -> None:
    """One pair of processes sees 5 %, as tight as can be; where memory lies could do that."""
    parts = [measured(0.05, seed=seed, placement=0.014) for seed in range(8)]
    settled = [samples.is_settled(samples.joined(parts[:count])) for count in range(1, 9)]

    assert not settled[0]
    assert settled[-1]
    assert samples.conclude(samples.joined(parts[: 1 + settled.index(True)]))["verdict"] == "faster"


def test_a_clock_that_scatters_more_than_processes_do_asks_for_none() -> None:
    rng = random.Random(1)
    noisy = measured(placement=0.003)
    noisy["candidate_s"] = [s * rng.lognormvariate(0, 0.2) for s in noisy["candidate_s"]]

    assert samples.conclude(noisy)["verdict"] == "unresolved"
    assert samples.is_settled(noisy)


def test_what_processes_differ_by_on_a_cpu_grows_with_the_memory_that_a_call_touches() -> None:
    """A core's own cache holds the first."""
    found = [samples.placement("cpu_monotonic", (1e-3, 0), touched_bytes=n) for n in (10_000, 2**20, 2**24)]

    assert found == pytest.approx([0.003, 0.015, 0.03])


def test_what_processes_differ_by_grows_with_the_launches_and_shrinks_with_the_time() -> None:
    """As seen on an H200, a side each: 1.6 % of 4.3 us, 0.35 % of 14 us, 0.7 % of two launches in 21 us, and 3.6 % of 40 in 87 us."""
    one = [samples.placement("cuda_events_cold", (s, 1)) for s in (4.3e-6, 14e-6, 5e-3)]
    several = [samples.placement("cuda_events_cold", times) for times in ((21e-6, 2), (87e-6, 40))]

    assert one == pytest.approx([0.0186, 0.0057, 0.0015], rel=0.05)
    assert several == pytest.approx([0.0074, 0.035], rel=0.05)
    assert samples.placement("cuda_events_cold", (14e-6, 1), (14e-6, 1)) == pytest.approx(0.0057 * 2**0.5, rel=0.05)


def test_a_host_that_sleeps_before_its_launch_has_not_launched_hundreds() -> None:
    assert samples.placement("cuda_events_cold", (14e-6, samples.launches_at_most(1e-3))) == pytest.approx(0.035)


def test_on_a_cpu_processes_differ_by_a_share_and_short_calls_by_more() -> None:
    assert samples.placement("cpu_monotonic", (2e-3, 1), (5e-3, 9)) == pytest.approx(0.003 * 2**0.5)
    assert samples.placement("cpu_monotonic", (7e-6, 1)) == pytest.approx(0.0129, rel=0.01)


@pytest.mark.parametrize("scatter", [0.004, 0.008, 0.014])
def test_verdicts_over_fresh_processes_hold_for_equal_sides_and_for_five_percent(scatter: float) -> None:
    """60 candidates of each kind, timed in as many processes as it takes, whose memory lies where it lies."""
    rng = random.Random(5)
    wrong = held = called = 0
    for effect in [0.0] * 60 + [0.05] * 60:
        parts: list[dict[str, Any]] = []
        while len(parts) < 8 and not (parts and samples.is_settled(samples.joined(parts))):
            own = (1 + effect) * rng.lognormvariate(0, scatter) - 1
            parts.append(measured(own, seed=rng.randrange(10**6), placement=0.014))
        concluded = samples.conclude(samples.joined(parts))
        held += concluded["speedup_low"] <= 1 + effect <= concluded["speedup_high"]
        wrong += concluded["verdict"] == "slower" or (not effect and concluded["verdict"] == "faster")
        called += bool(effect) and concluded["verdict"] == "faster"

    assert wrong <= 1
    assert held >= 114
    # As far as eight processes can tell.
    assert called >= (57 if scatter <= 0.008 else 45)


def test_samples_of_an_older_version_are_read() -> None:
    old = measured(0.05)
    for name in ("format", "flags", "reference_wall_s", "candidate_wall_s"):
        del old[name]

    concluded = samples.conclude(old)

    assert concluded["verdict"] == "faster"
    assert concluded["reference_wall_s"] is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"orders": ["rc"] * 39}, "not an entry for each of 39 orders"),
        ({"reference_s": None}, "`reference_s` is missing"),
        ({"candidate_s": [0.0] * 40}, "`candidate_s` is missing, or holds what cannot be there"),
        ({"orders": [], "reference_s": [], "candidate_s": []}, "no pairs"),
        ({"pairs_a_block": 0}, "`pairs_a_block`"),
        ({"pairs_by_process": [20, 30]}, "does not add up to 40"),
    ],
)
def test_what_are_no_samples_is_said(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        samples.conclude(measured(**change))
