"""How an examination adds to a timing: what it cost, what it found, and nothing where it came to nothing."""

from __future__ import annotations

from kbench.engines.timing import examined
from kbench.records import Comparison, Timing

TIMING = Timing(
    case="default",
    verdict=Comparison.FASTER,
    timer="cuda_events_cold",
    pairs=40,
    reference_s=2e-5,
    candidate_s=1e-5,
    speedup=2.0,
    speedup_low=1.9,
    speedup_high=2.1,
    flags=("slow_launch",),
    notes=("a note",),
    extra={"wall_s": 0.5, "gpu_s": 0.1, "spent_s": {"warm": 0.2}, "floor_s": 3e-6},
    samples={"orders": ["rc"], "flags": ["gpu_shared"]},
)


def test_what_was_found_is_added_and_what_it_cost() -> None:
    found = {
        "extra": {"candidate_graph_s": 5e-6},
        "cost": {"wall_s": 0.25, "gpu_s": 0.05, "spent_s": {"steady": 0.2}},
        "flags": ["graph_host_bound"],
        "notes": ["energy not measured: no counter"],
        "samples": {"graph": {}},
    }
    timing = examined(TIMING, {"examined": found}, late=False)

    assert timing.extra["wall_s"] == 0.75
    assert timing.extra["spent_s"] == {"warm": 0.2, "steady": 0.2}
    assert (timing.extra["floor_s"], timing.extra["candidate_graph_s"]) == (3e-6, 5e-6)
    assert timing.flags == ("graph_host_bound", "slow_launch")
    assert timing.notes == ("a note", "energy not measured: no counter")
    assert (set(timing.samples), timing.samples["flags"]) == ({"orders", "flags", "graph"}, ["gpu_shared", "graph_host_bound"])
    assert (timing.verdict, timing.speedup) == (TIMING.verdict, TIMING.speedup)


def test_an_examination_that_came_to_nothing_is_a_note_and_costs_no_verdict() -> None:
    for answer, late, why in (
        (None, False, "a process ended"),
        ({"gone": "time"}, True, "no answer in time"),
        ({"detail": "out of memory"}, False, "out of memory"),
    ):
        timing = examined(TIMING, answer, late)

        assert timing.notes == ("a note", f"graph and kernels not measured: {why}")
        assert (timing.verdict, timing.extra, timing.flags) == (TIMING.verdict, TIMING.extra, TIMING.flags)
