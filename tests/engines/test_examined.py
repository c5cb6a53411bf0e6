"""How an examination adds to a timing: what it cost, what it found, and nothing where it came to nothing."""

from __future__ import annotations

import random

from kbench import samples
from kbench.engines.timing import examined, timing_from
from kbench.records import Timing

PAIRS = 40


def timing_of(reference_s: float, candidate_s: float) -> Timing:
    rng = random.Random(1)
    measured = {
        "orders": ["rc", "cr"] * (PAIRS // 2),
        "reference_s": [reference_s * rng.lognormvariate(0, 0.001) for _ in range(PAIRS)],
        "candidate_s": [candidate_s * rng.lognormvariate(0, 0.001) for _ in range(PAIRS)],
        "pairs_a_block": 4,
        "placement": 0.05,
        "flags": ["gpu_shared"],
    }
    concluded = samples.conclude(measured)
    return timing_from(
        {
            **concluded,
            "case": "default",
            "timer": "cuda_events_cold",
            "notes": ["a note"],
            "extra": {**concluded["extra"], "wall_s": 0.5, "gpu_s": 0.1, "spent_s": {"warm": 0.2}, "floor_s": 3e-6},
            "samples": measured,
        }
    )


TIMING = timing_of(20e-6, 10e-6)
FOUND = {
    "extra": {"candidate_graph_s": 5e-6},
    "cost": {"wall_s": 0.25, "gpu_s": 0.05, "spent_s": {"steady": 0.2}},
    "flags": ["graph_host_bound"],
    "notes": ["energy not measured: no counter"],
    "samples": {},
}


def test_what_was_found_is_added_and_what_it_cost() -> None:
    timing = examined(TIMING, {"examined": FOUND}, late=False)

    assert timing.extra["wall_s"] == 0.75
    assert timing.extra["spent_s"] == {"warm": 0.2, "steady": 0.2}
    assert (timing.extra["floor_s"], timing.extra["candidate_graph_s"]) == (3e-6, 5e-6)
    assert timing.flags == ("gpu_shared", "graph_host_bound")
    assert timing.notes == ("a note", "energy not measured: no counter")
    assert timing.samples["flags"] == ["gpu_shared", "graph_host_bound"]
    assert (timing.verdict, timing.speedup, timing.speedup_low) == (TIMING.verdict, TIMING.speedup, TIMING.speedup_low)


def test_counted_launches_tell_how_far_one_pair_of_processes_is_to_be_believed() -> None:
    """Two single launches of 20 and 10 us differ from process to process by 1 %; a chain of 30 beside one by 3 %."""
    widths = []
    for launches in ((1, 1), (30, 1)):
        kernels = dict(zip(("reference_kernels", "candidate_kernels"), launches, strict=True))
        timing = examined(TIMING, {"examined": {**FOUND, "extra": kernels}}, late=False)
        widths.append(timing.speedup_high / timing.speedup_low)
        assert samples.conclude(timing.samples)["speedup_low"] == timing.speedup_low

    assert widths[0] < 1.1 < widths[1] < TIMING.speedup_high / TIMING.speedup_low


def test_an_examination_that_came_to_nothing_is_a_note_and_costs_no_verdict() -> None:
    for answer, late, why in (
        (None, False, "a process ended"),
        ({"gone": "time"}, True, "no answer in time"),
        ({"detail": "out of memory"}, False, "out of memory"),
    ):
        timing = examined(TIMING, answer, late)

        assert timing.notes == ("a note", f"graph and kernels not measured: {why}")
        assert (timing.verdict, timing.extra, timing.flags) == (TIMING.verdict, TIMING.extra, TIMING.flags)
