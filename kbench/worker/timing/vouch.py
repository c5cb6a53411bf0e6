"""Does what a candidate's process reports agree with the judge's own clock?

What is far off is refused. What is too noisy for that and too far off to vouch for counts against the speed-up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kbench import samples, stats
from kbench.records import exploit
from kbench.worker.session import CandidateFault
from kbench.worker.timing.side import Side

# What a side may spend between the judge's clock and its own beyond what the reference's side spends, as a share of
# what it reports and in seconds a slot: work that is done outside of the measured span shows here.
_EXCESS_SHARE = 0.2
_EXCESS_S = 30e-6
# What a caller waits is heard through messages, which take their time. Afterwards the outputs of a round are handed
# over; one process takes longer for it than another, by 9 us an output as seen on an H200.
_WALL_EXCESS_S, _DELIVER_EXCESS_S = 300e-6, 500e-6
_HOST_SHARE = 0.3
# What a wait has on a GPU besides the call: a launch and a synchronisation.
_WAIT_S = 20e-6
# What a burst may take beyond that: on an H200 the turns that two processes take at one GPU cost a burst 0.6 ms, less
# some 0.05 ms now and then and more by 0.4 ms.
_BURST_SHARE, _BURST_EXCESS_S = 0.25, 150e-6
# A median lies within this over the root of their number of the middle of the ranks, 99 times of 100: half of the normal
# distribution's 2.58.
_MEDIAN_REACH = 1.29
# From this share on it is no more what calls take longer for being made in a row (on two streams by 37 % on an H200).
_BURST_SHARE_MOST = 0.5


class Vouching:
    """The `share` of a candidate's speed that the judge's clock confirms, and the `flags` of what it does not."""

    def __init__(self) -> None:
        self.share = 1.0
        self.flags: set[str] = set()

    def hold_slots(self, candidate: Side, reference: Side, *, calls: int) -> None:
        """Hold slots of so many calls against what they took from outside; the reference's say what the road costs.

        Raises:
            CandidateFault: they take longer than is reported.
        """
        claimed_s = stats.median(candidate.seconds) * calls
        found, allowed = (
            [outside - inside * calls for outside, inside in zip(side.outside_s, side.seconds, strict=True)] for side in (candidate, reference)
        )
        self._doubt(*_unexplained(found, allowed, claimed_s, _EXCESS_S, "a slot"), claimed_s)

    def hold_waits(self, candidate: Side, reference: Side) -> None:
        """Hold rounds of waits against what they took from outside.

        Raises:
            CandidateFault: they take longer than is reported.
        """
        claimed_s = stats.median(candidate.wall_s) * len(candidate.wall_s) / max(len(candidate.wall_excess_s), 1)
        for found, allowed, excess_s, what in (
            (candidate.wall_excess_s, reference.wall_excess_s, _WALL_EXCESS_S, "a round of waits"),
            (candidate.deliver_excess_s, reference.deliver_excess_s, _DELIVER_EXCESS_S, "a round of waits and handing over what it returned"),
        ):
            slack_s = excess_s + _HOST_SHARE * max(0.0, stats.median(allowed))
            _unexplained(found, allowed, claimed_s, slack_s, what)

    def hold_bursts(self, candidate: Side, *, overhead_s: Sequence[float], calls: int) -> None:
        """Hold times against bursts of so many calls; where they cannot be queued, against what callers wait.

        The shortest burst, of which neither the host nor the turns at the GPU can have taken anything away, accuses.

        Raises:
            CandidateFault: they take longer than is reported.
        """
        call_s = stats.median(candidate.seconds)
        if sum(candidate.bursts.queued) * 2 <= len(candidate.bursts.queued):
            # It waits for the device inside its call. What its callers wait is held against a clock: what they wait
            # longer than it says that the device takes counts against it.
            self._doubt(stats.median(candidate.wall_s) - call_s - _WAIT_S, True, call_s)
            return
        claimed_s = call_s * calls
        excess_s = min(candidate.bursts.seconds) - stats.median(overhead_s) - claimed_s
        if excess_s > _BURST_SHARE_MOST * claimed_s + _BURST_EXCESS_S:
            words = f"its process reports {call_s:.3g} s a call; {calls} calls in a row take {excess_s + claimed_s:.3g} s by the judge's clock"
            raise CandidateFault(exploit("clock"), words)
        self._doubt(excess_s - _BURST_EXCESS_S, excess_s > _BURST_SHARE * claimed_s + _BURST_EXCESS_S, claimed_s)

    def _doubt(self, doubt_s: float, far_off: bool, claimed_s: float) -> None:  # noqa: FBT001 - as `_unexplained` gives it
        """Count what nobody can explain against the speed-up, however little: what is allowed is no gain."""
        if far_off:
            self.flags.add(samples.CLOCK_UNVERIFIED)
        if doubt_s > 0.0:
            self.share = claimed_s / (claimed_s + doubt_s)


def _unexplained(found: Sequence[float], allowed: Sequence[float], claimed_s: float, slack_s: float, what: str) -> tuple[float, bool]:
    """Hold seconds that the judge found on the candidate's side against those to be expected there.

    Gives what is in doubt, and whether that is more than a busy machine explains. What is hidden is hidden every time;
    what such a machine adds is not.
    """
    limit_s = slack_s + _EXCESS_SHARE * claimed_s
    excess_s = stats.quantile(found, 0.1) - max(0.0, stats.quantile(allowed, 0.75))
    if excess_s > limit_s:
        words = f"its process reports {claimed_s:.3g} s for {what}; by the judge's clock that takes {excess_s:.3g} s more than it should"
        raise CandidateFault(exploit("clock"), words)
    doubt_s = stats.median(found) - max(0.0, stats.median(allowed))
    if doubt_s > limit_s:
        return doubt_s, True
    # As far as it is no noise: by the bounds of both medians.
    reach = [min(0.5, _MEDIAN_REACH / math.sqrt(len(values))) for values in (found, allowed)]
    return stats.quantile(found, 0.5 - reach[0]) - max(0.0, stats.quantile(allowed, 0.5 + reach[1])), False
