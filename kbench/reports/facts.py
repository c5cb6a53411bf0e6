"""What follows from a timing's figures, in a few words: where a gain comes from, how near the speed of light."""

from __future__ import annotations

import math

from kbench.records import is_gpu
from kbench.reports.units import factor

# What is told apart from nothing: no gain worth a word, and none that is left.
_NO_GAIN = 1.05
_NOTHING_LEFT = 1.02
# A gain of which less than this part (of its logarithm) is the kernels' own comes from launches for the most part.
_MOSTLY = 0.5


def ratio(reference_s: object, candidate_s: object) -> float | None:
    """How much less the candidate takes; None where either is unknown."""
    if isinstance(reference_s, (int, float)) and isinstance(candidate_s, (int, float)) and reference_s > 0 and candidate_s > 0:
        return reference_s / candidate_s
    return None


def gain(device: str, cold: float | None, wall: float | None, steady: float | None) -> str:
    """Say where the gain is launches instead of work: empty where it is the kernels', or there is none, or no device to launch on.

    `cold` is the speed-up on the device, `wall` that of a caller who waits, `steady` that in a CUDA graph, where
    neither side launches anything (None: unknown, and `cold` stands for it).
    """
    if not is_gpu(device) or cold is None or cold <= _NO_GAIN:
        return ""
    gained, own = max(cold, wall or 0.0), steady or cold
    if own < _NOTHING_LEFT:
        return "gain is launch overhead"
    if math.log(own) < _MOSTLY * math.log(gained):
        return f"gain is mostly launch overhead: {factor(own)} of {factor(gained)} is left {'in a CUDA graph' if steady else 'on the device'}"
    return ""


def light(sol_s: object, bound: object, seconds: object) -> str:
    """Say how near a time is to the speed of light of its task: `78 % (memory)`, `latency-bound`; empty where unknown."""
    if not bound:
        return ""
    if bound == "latency":
        return "latency-bound"
    share = ratio(sol_s, seconds)
    return "" if share is None else f"{share * 100:.0f} % ({bound})"
