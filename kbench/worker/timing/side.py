"""One of the two processes that are timed, as the judge sees it: what it was asked, and what it claims."""

from __future__ import annotations

from typing import Any

from kbench import samples, stats
from kbench.claims import Claims
from kbench.records import exploit
from kbench.worker.session import CandidateFault, CaseSession
from kbench.worker.timing.burst import Bursts

# No call takes less than a clock could tell, nor longer than anyone waits.
_SECONDS = (1e-12, 1e7)


class Side:
    """One of the two processes, with what it has reported."""

    def __init__(self, session: CaseSession) -> None:
        self.session = session
        self.seconds: list[float] = []
        self.outside_s: list[float] = []
        self.reports: list[dict[str, Any]] = []
        self.hot_s: list[float] = []
        self.wall_s: list[float] = []
        self.wall_excess_s: list[float] = []
        # The same with the outputs of a round handed over.
        self.deliver_excess_s: list[float] = []
        self.bursts = Bursts()
        self.enqueue_s: list[float] = []
        self.memory_bytes: int | None = None
        # What its slots kept the device busy for, and its calls outside of slots.
        self.busy_s = 0.0
        self.calls = 0

    def ask(self, op: str, **arguments: Any) -> Claims:
        """Ask the process at the other end."""
        return self.session.peer.ask("time", op, **arguments)

    @property
    def was_disturbed(self) -> bool:
        """Whether the scheduler took a core away from the last slot."""
        return samples.is_disturbed(self.reports[-1])

    @property
    def queue_s(self) -> float:
        """What its host takes to queue a call."""
        return stats.median([report.get("enqueue", 0.0) for report in self.reports] or [0.0])

    def discard(self) -> None:
        """Forget the last slot."""
        for kept in (self.seconds, self.outside_s, self.reports):
            kept.pop()


def claimed_seconds(answer: Claims, count: int, name: str = "seconds") -> list[float]:
    """Read the times of so many calls.

    Raises:
        CandidateFault: there are not so many, or they cannot be.
    """
    claimed = answer.numbers(name)
    if len(claimed) == count and all(_SECONDS[0] <= seconds <= _SECONDS[1] for seconds in claimed):
        return claimed
    raise CandidateFault(exploit("clock"), "its process reported no time, or one that cannot be")


def claimed_time(answer: Claims) -> float:
    """Read the one time of an answer.

    Raises:
        CandidateFault: there is none, or it cannot be.
    """
    seconds = answer.number("seconds")
    if seconds is not None and _SECONDS[0] <= seconds <= _SECONDS[1]:
        return seconds
    raise CandidateFault(exploit("clock"), "its process reported no time, or one that cannot be")
