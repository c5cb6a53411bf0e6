"""What a run shows while it works: results on stdout, everything else on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from kbench.records import Status, Timing, Verdict
from kbench.reports import jsonlines
from kbench.store import visible

if TYPE_CHECKING:
    from rich.console import Console


# Without a terminal, a long run tells its pace so often.
_PACE_S = 10.0


class Reporter(Protocol):
    """Whom a run tells what happens."""

    def started(self, total: int) -> None:
        """So many candidates are to be judged."""

    def stage(self, label: str, stage: str) -> None:
        """A candidate has come to a stage."""

    def verdict(self, verdict: Verdict) -> None:
        """A candidate is judged."""

    def timing(self, verdict: Verdict, timings: Sequence[Timing]) -> None:
        """A candidate is judged and, if it was accepted, timed."""

    def warning(self, text: str) -> None:
        """Something is worth knowing, and worth mending."""

    def note(self, text: str) -> None:
        """Something is worth knowing."""

    def finished(self) -> None:
        """Nothing more comes."""


def reporter(*, as_json: bool) -> Reporter:
    """Choose by what stderr is and what was asked for."""
    if as_json:
        return JsonReporter()
    return RichReporter() if sys.stderr.isatty() else PlainReporter()


class _Pace:
    """How fast candidates are done, as a line now and then."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._total = 0
        self._done = 0
        self._started_s = self._told_s = clock()

    def start(self, total: int) -> None:
        """So many are to be done, from now on."""
        self._total = total
        self._started_s = self._told_s = self._clock()

    def advance(self) -> str:
        """One more is done; what to tell, which is nothing most of the time and in the end."""
        self._done += 1
        now_s = self._clock()
        if now_s - self._told_s < _PACE_S or self._done >= self._total:
            return ""
        self._told_s = now_s
        return f"{self._done} of {self._total} done, {self.rate:.3g}/s, {_duration((self._total - self._done) / self.rate)} left"

    @property
    def rate(self) -> float:
        """Candidates a second."""
        return self._done / max(self._clock() - self._started_s, 1e-3)


def _duration(seconds: float) -> str:
    minutes, whole_s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {whole_s:02} s" if minutes else f"{whole_s} s"


class JsonReporter:
    """JSON lines on stdout, flushed one by one; warnings and, in a long run, its pace as plain lines on stderr."""

    def __init__(self) -> None:
        self._pace = _Pace()

    def started(self, total: int) -> None:
        """See `Reporter`."""
        self._pace.start(total)

    def stage(self, label: str, stage: str) -> None:
        """See `Reporter`."""

    def verdict(self, verdict: Verdict) -> None:
        """See `Reporter`."""
        self._tell(jsonlines.line(jsonlines.verdict_object(verdict)))

    def timing(self, verdict: Verdict, timings: Sequence[Timing]) -> None:
        """See `Reporter`."""
        self._tell(jsonlines.line(jsonlines.timing_object(verdict, timings)))

    def _tell(self, line: str) -> None:
        print(line, flush=True)  # noqa: T201
        if told := self._pace.advance():
            self.note(told)

    def warning(self, text: str) -> None:
        """See `Reporter`."""
        self.note(f"warning: {text}")

    def note(self, text: str) -> None:
        """See `Reporter`."""
        print(visible(text), file=sys.stderr, flush=True)  # noqa: T201

    def finished(self) -> None:
        """See `Reporter`."""


class PlainReporter:
    """Lines for people, without a terminal: results on stdout, a summary on stderr."""

    def __init__(self) -> None:
        self._out = console(stderr=False)
        self._err = console(stderr=True)
        self._counts: dict[Status, int] = {}
        self._total = 0
        self._pace = _Pace()

    def started(self, total: int) -> None:
        """See `Reporter`."""
        self._total = total
        self._pace.start(total)

    def stage(self, label: str, stage: str) -> None:
        """See `Reporter`."""

    def verdict(self, verdict: Verdict) -> None:
        """See `Reporter`."""
        from kbench.reports import terminal  # noqa: PLC0415 - rich costs 0.1 s, which JSON lines need not pay

        self._out.print(terminal.verdict_line(verdict))
        self._judged(verdict.status)

    def timing(self, verdict: Verdict, timings: Sequence[Timing]) -> None:
        """See `Reporter`."""
        from kbench.reports import terminal  # noqa: PLC0415 - see above

        if verdict.status is not Status.PASS or not timings:
            self.verdict(verdict)
            return
        for timing in timings:
            self._out.print(terminal.timing_line(verdict, timing))
        self._judged(verdict.status)

    def _judged(self, status: Status) -> None:
        self._counts[status] = self._counts.get(status, 0) + 1
        if told := self._pace.advance():
            self.note(told)

    def warning(self, text: str) -> None:
        """See `Reporter`."""
        self._err.print(f"warning: {visible(text)}", style="yellow", markup=False, highlight=False)

    def note(self, text: str) -> None:
        """See `Reporter`."""
        self._err.print(visible(text), markup=False, highlight=False)

    def finished(self) -> None:
        """See `Reporter`."""
        if self._total:
            told = ", ".join(f"{count} {status}" for status, count in sorted(self._counts.items()))
            self._err.print(f"{sum(self._counts.values())} of {self._total} candidates: {told or 'none'}", highlight=False)


class RichReporter(PlainReporter):
    """Lines for people, and below them a bar with rate and time left while the run lasts."""

    def __init__(self) -> None:
        super().__init__()
        from rich.progress import (  # noqa: PLC0415 - see above
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._progress = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[rate]}", markup=False),
            TimeRemainingColumn(),
            TextColumn("{task.description}", markup=False),
            console=self._err,
            transient=True,
        )
        self._task = self._progress.add_task("starting", total=None, rate="")
        self._progress.start()

    def started(self, total: int) -> None:
        """See `Reporter`."""
        super().started(total)
        self._progress.update(self._task, total=total)

    def stage(self, label: str, stage: str) -> None:
        """See `Reporter`."""
        self._progress.update(self._task, description=visible(f"{label}: {stage}"))

    def _judged(self, status: Status) -> None:
        self._counts[status] = self._counts.get(status, 0) + 1
        self._pace.advance()
        self._progress.update(self._task, advance=1, rate=f"{self._pace.rate:.3g}/s")

    def finished(self) -> None:
        """See `Reporter`."""
        self._progress.stop()
        super().finished()


def console(*, stderr: bool) -> Console:
    """Open stdout or stderr for people; in a pipe no line is cut or wrapped."""
    from rich.console import Console  # noqa: PLC0415 - see above

    stream = sys.stderr if stderr else sys.stdout
    # In a pipe a line is as long as it is: who cuts it there loses what he looked for.
    return Console(file=stream, soft_wrap=not stream.isatty(), width=None if stream.isatty() else 10_000, highlight=False)
