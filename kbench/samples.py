"""What does the clock say, given all that it measured? One answer for a fresh measurement and for `kbench report`.

Samples are a JSON object, as results/samples/ keeps it: `orders`, `reference_s` and `candidate_s` have an entry
for each pair, in the order of measuring, and the reports one for each slot. `pairs_by_process` has the number of
pairs that each pair of processes measured.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kbench import stats
from kbench.records import Comparison

FORMAT = 2

# The judge's own clock could not confirm what a candidate's process says.
CLOCK_UNVERIFIED = "clock_unverified"
# A model that keeps state gives other outputs in the judge's process: those of timed calls were compared with nothing.
UNCHECKED = "outputs_unchecked_stateful"

# Below this many times what an empty kernel reads, a slot tells the launch rather than the kernel.
_AT_FLOOR = 1.5
# What the host may add to a call beyond what it adds to the reference's before that is worth a flag.
_SLOW_LAUNCH = (1.2, 200e-6)
# Spread of the SM clock over the reference's slots, middle nine tenths, that is worth a flag.
_CLOCK_SPREAD = 0.03
# A larger share of pairs that the scheduler interrupted, though they were measured again, is said.
_DISTURBED_SHARE = 0.05
# A hypervisor that gives more than this share of the time to others is said, too.
_STEAL_SHARE = 0.01

# What may be measured in a steady state: calls in a CUDA graph, or queued in a stream.
STEADY = ("graph", "stream")
# Slopes over the two stretches of three chains differ by no more than this.
_LINEAR = 0.03
# What a side's time scatters by from one process to another, as a share of it: on a CPU at least, and in seconds (as seen
# of 7 us on two cores); on a GPU at least and at most, and in between so many seconds for the first launch and for each
# further one. Seen on an H200 in 20 fresh pairs of processes: 0.07 us of one of 4 us, 0.05 of one of 14, 0.15 of one of 181,
# 3.1 us of 40 launches of 87, wherever their memory lay; in 100 of them 0.15 us of two of 21.
_CPU_SCATTER, _CPU_SCATTER_S = 0.003, 90e-9
# On a CPU more where a call touches more than a core's own cache holds, by the pages that a process has: seen in 8 pairs
# of processes 0.019 a side of two with 2 and 12 MB, and 0.065 of rows gathered from a table of 5 MB.
_PAGES_SCATTER, _PAGES_BYTES = 0.03, 2 * 2**20
_GPU_SCATTER, _FIRST_LAUNCH_S, _LAUNCH_S = (0.0015, 0.035), 0.08e-6, 0.075e-6
# Rather too short, so that launches are too many: torch's took 20 us each on one host, those of C++ take less.
_QUEUE_S = 2e-6

# Lists with an entry for each pair or slot, which several processes' samples add to.
_LISTS = tuple(
    ["orders", *(f"{side}_{what}" for side in ("reference", "candidate") for what in ("s", "reports", "hot_s", "wall_s"))],
)

Samples = Mapping[str, Any]


def conclude(samples: Samples) -> dict[str, Any]:
    """Give the fields of `records.Timing` that follow from samples, by name, and more in `extra`.

    Raises:
        ValueError: these are no samples; the text says what is missing or wrong.
    """
    _require(samples)
    found = _compared(samples)
    flags = {*found.flags, *_seen_in(samples), *samples.get("flags", ())}
    vouched, is_checked = samples.get("vouched", 1.0), UNCHECKED not in flags
    low = found.speedup_low * vouched
    return {
        "verdict": _vouched(found, vouched, is_checked=is_checked),
        "pairs": len(samples["orders"]),
        "reference_s": found.reference_s,
        "candidate_s": found.candidate_s,
        "speedup": found.speedup,
        "speedup_low": low if is_checked else min(low, 1.0),
        "speedup_high": found.speedup_high,
        "reference_wall_s": _median(samples.get("reference_wall_s")),
        "candidate_wall_s": _median(samples.get("candidate_wall_s")),
        "flags": sorted(flags),
        "extra": {
            "delta": found.delta,
            "noise": found.noise,
            "self_check": found.self_check,
            "order_effect": found.order_effect,
            "blocks": found.blocks,
            "process_speedups": list(found.process_speedups),
            **_hot(samples),
            **{name: value for kind in STEADY if kind in samples for name, value in steady(kind, samples[kind]).items()},
        },
    }


def steady(kind: str, chains: Mapping[str, Any]) -> dict[str, Any]:
    """Give what follows from chains of calls, by the names of columns: seconds a call of both sides, and the speed-up.

    `chains` has `chains` (their lengths, in multiples of the shortest), `calls` (those of the shortest, one number a
    side), and for each side a list of the seconds of every chain. What each chain costs besides its calls cancels
    in the slope from the shortest to the longest.

    Raises:
        ValueError: time does not grow with the calls, or these are no chains.
    """
    try:
        lengths, calls = chains["chains"], dict(zip(("reference", "candidate"), chains["calls"], strict=True))
        slopes = [[(seconds[-1] - seconds[0]) / ((lengths[-1] - lengths[0]) * n) for seconds in chains[f"{side}_s"]] for side, n in calls.items()]
    except (KeyError, IndexError, TypeError, ValueError, ZeroDivisionError):
        raise ValueError(f"`{kind}` is missing something, or holds what cannot be there") from None
    if len(slopes[0]) != len(slopes[1]) or not all(math.isfinite(slope) and slope > 0 for side in slopes for slope in side):
        raise ValueError("time does not grow with the calls")
    ratios = stats.block_log_ratios(slopes[0], slopes[1], 1)
    interval = stats.rank_interval(ratios, stats.CONFIDENCE)
    return {
        f"reference_{kind}_s": stats.median(slopes[0]),
        f"candidate_{kind}_s": stats.median(slopes[1]),
        f"{kind}_speedup": math.exp(stats.hodges_lehmann(ratios)),
        f"{kind}_speedup_low": math.exp(interval.low),
        f"{kind}_speedup_high": math.exp(interval.high),
    }


def is_linear(lengths: Sequence[int], seconds: Sequence[Sequence[float]]) -> bool:
    """Say whether time grows with the calls alike over the first and the second stretch of three chains."""
    first, second, third = (stats.median([each[i] for each in seconds]) for i in range(3))
    one, other, last = lengths
    early, late = (second - first) / (other - one), (third - second) / (last - other)
    return abs(early - late) <= _LINEAR * max(abs(early), abs(late))


def placement(timer: str, *sides: tuple[float, float], touched_bytes: int = 0) -> float:
    """How much the log ratio of two sides scatters from one pair of processes to another, as a standard deviation.

    Each of `sides` is the seconds that a call takes, and how many launches it makes. Where a process's memory, of which
    a call touches so many bytes, and its channel to the device lie stays the same for its life.
    """
    return math.hypot(*(_scatter(timer, call_s, launches, touched_bytes) for call_s, launches in sides))


def launches_at_most(queue_s: float) -> float:
    """How many launches a call may make that the host takes so long to queue, as long as nobody has counted them."""
    return queue_s / _QUEUE_S


def _scatter(timer: str, call_s: float, launches: float, touched_bytes: int) -> float:
    if timer == "cpu_monotonic":
        return max(_CPU_SCATTER, _CPU_SCATTER_S / call_s, _PAGES_SCATTER * min(1.0, touched_bytes / _PAGES_BYTES))
    least, most = _GPU_SCATTER
    return min(max((_FIRST_LAUNCH_S + _LAUNCH_S * max(0.0, launches - 1)) / call_s, least), most)


def is_settled(samples: Samples) -> bool:
    """Say whether further pairs of processes would tell nothing: the verdict is clear, or it is not for them to make it so."""
    found = _compared(samples)
    if found.verdict is not Comparison.UNRESOLVED:
        return True
    # Where the pairs of one process scatter as much as processes do, the clock is the trouble.
    return bool(found.inside > samples.get("placement", 0.0))


def _vouched(found: stats.PairedTiming, vouched: float, *, is_checked: bool) -> Comparison:
    """What the times say: faster only where it is so with what the judge's clock leaves unexplained, too, and it was seen what they computed."""
    is_sure = vouched == 1.0 or found.speedup_low * vouched > 1.0 + found.delta
    return found.verdict if found.verdict is not Comparison.FASTER or (is_sure and is_checked) else Comparison.UNRESOLVED


def joined(parts: Sequence[Samples]) -> dict[str, Any]:
    """Join what several pairs of processes measured of one case; what is no list of samples is the first one's."""
    if len(parts) == 1:
        return dict(parts[0])
    lists = {name: [entry for part in parts for entry in part.get(name, ())] for name in _LISTS if name in parts[0]}
    return {
        **parts[0],
        **lists,
        "pairs_by_process": [len(part["orders"]) for part in parts],
        "flags": sorted({flag for part in parts for flag in part.get("flags", ())}),
        "vouched": min(part.get("vouched", 1.0) for part in parts),
    }


def parted(samples: Samples) -> list[dict[str, Any]]:
    """Take what several pairs of processes measured apart again: the opposite of `joined`, but for the flags."""
    counts = samples.get("pairs_by_process", [len(samples["orders"])])
    bounds = list(itertools.pairwise(itertools.accumulate(counts, initial=0)))
    # The others have no entry for each pair.
    each = [name for name in _LISTS if len(samples.get(name) or ()) == sum(counts)]
    rest = {name: value for name, value in samples.items() if name not in ("pairs_by_process", *each)}
    return [{**rest, **{name: samples[name][start:stop] for name in each}} for start, stop in bounds]


def is_disturbed(report: Mapping[str, Any]) -> bool:
    """Say whether the scheduler took a core away during the slot that a report is of."""
    return bool(report.get("preemptions", 0) > 0)


def _compared(samples: Samples) -> stats.PairedTiming:
    return stats.compare(
        samples["reference_s"],
        samples["candidate_s"],
        per_block=samples["pairs_a_block"],
        orders=samples["orders"],
        precision=samples.get("precision", 0.01),
        resolution_s=samples.get("resolution_s", 0.0),
        processes=samples.get("pairs_by_process", ()),
        placement=samples.get("placement", 0.0),
    )


def _require(samples: Samples) -> None:
    pairs = len(_list_of(samples, "orders", lambda order: order in ("rc", "cr")))
    for name in ("reference_s", "candidate_s"):
        if len(_list_of(samples, name, _is_time)) != pairs:
            raise ValueError(f"`{name}` has not an entry for each of {pairs} orders")
    if not pairs:
        raise ValueError("there are no pairs")
    per_block, by_process = samples.get("pairs_a_block"), samples.get("pairs_by_process", [pairs])
    if type(per_block) is not int or per_block < 1:
        raise ValueError("`pairs_a_block` is no number of pairs")
    if not isinstance(by_process, list) or not all(type(count) is int and count > 0 for count in by_process) or sum(by_process) != pairs:
        raise ValueError(f"`pairs_by_process` does not add up to {pairs} pairs")


def _list_of(samples: Samples, name: str, fits: Any) -> list[Any]:
    found = samples.get(name)
    if not isinstance(found, list) or not all(map(fits, found)):
        raise ValueError(f"`{name}` is missing, or holds what cannot be there")
    return found


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf


def _median(values: Sequence[float] | None) -> float | None:
    return stats.median(values) if values else None


def _hot(samples: Samples) -> dict[str, Any]:
    reference_s, candidate_s = samples.get("reference_hot_s"), samples.get("candidate_hot_s")
    if not reference_s or not candidate_s:
        return {"reference_hot_s": None, "candidate_hot_s": None}
    ratios = stats.block_log_ratios(reference_s, candidate_s, 1)
    return {
        "reference_hot_s": stats.median(reference_s),
        "candidate_hot_s": stats.median(candidate_s),
        "hot_speedup": math.exp(stats.hodges_lehmann(ratios)),
    }


def _seen_in(samples: Samples) -> Iterable[str]:
    """What the reports of the slots are flagged for: the launches, the clock, the scheduler, the hypervisor."""
    reports = {side: samples.get(f"{side}_reports", ()) for side in ("reference", "candidate")}
    for side, flag in (("candidate", "host_bound"), ("reference", "reference_host_bound")):
        if not all(report.get("hidden", True) for report in reports[side]):
            yield flag
    disturbed = [is_disturbed(one) or is_disturbed(other) for one, other in zip(*reports.values(), strict=True)]
    if sum(disturbed) > _DISTURBED_SHARE * len(disturbed):
        yield "preempted"
    if samples.get("stolen_share", 0.0) > _STEAL_SHARE:
        yield "noisy_host"
    clocks = [report["sm_clock_hz"] for report in reports["reference"] if "sm_clock_hz" in report]
    if clocks and stats.quantile(clocks, 0.95) - stats.quantile(clocks, 0.05) > _CLOCK_SPREAD * stats.median(clocks):
        yield "unsteady_clock"
    floor_s = samples.get("floor_s")
    if floor_s is None:
        return
    if stats.median(samples["candidate_s"]) < _AT_FLOOR * floor_s:
        yield "at_launch_floor"
    share, slack_s = _SLOW_LAUNCH
    extra_s = [stats.median(samples[f"{side}_wall_s"]) - stats.median(samples[f"{side}_s"]) for side in ("reference", "candidate")]
    if extra_s[1] > share * max(extra_s[0], 0.0) + slack_s:
        yield "slow_launch"
