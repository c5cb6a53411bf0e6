"""What a run shows while it works: results on stdout, everything else on stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from kbench.records import Status, Timing, Verdict
from kbench.reports import jsonlines

if TYPE_CHECKING:
    from rich.console import Console


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
        """Something is worth knowing."""

    def finished(self) -> None:
        """Nothing more comes."""


def reporter(*, as_json: bool) -> Reporter:
    """Choose by what stderr is and what was asked for."""
    if as_json:
        return JsonReporter()
    return RichReporter() if sys.stderr.isatty() else PlainReporter()


class JsonReporter:
    """JSON lines on stdout, flushed one by one; warnings as plain lines on stderr."""

    def started(self, total: int) -> None:
        """See `Reporter`."""

    def stage(self, label: str, stage: str) -> None:
        """See `Reporter`."""

    def verdict(self, verdict: Verdict) -> None:
        """See `Reporter`."""
        print(jsonlines.line(jsonlines.verdict_object(verdict)), flush=True)  # noqa: T201

    def timing(self, verdict: Verdict, timings: Sequence[Timing]) -> None:
        """See `Reporter`."""
        print(jsonlines.line(jsonlines.timing_object(verdict, timings)), flush=True)  # noqa: T201

    def warning(self, text: str) -> None:
        """See `Reporter`."""
        print(f"warning: {text}", file=sys.stderr, flush=True)  # noqa: T201

    def finished(self) -> None:
        """See `Reporter`."""


class PlainReporter:
    """Lines for people, without a terminal: results on stdout, a summary on stderr."""

    def __init__(self) -> None:
        self._out = console(stderr=False)
        self._err = console(stderr=True)
        self._counts: dict[Status, int] = {}
        self._total = 0

    def started(self, total: int) -> None:
        """See `Reporter`."""
        self._total = total

    def stage(self, label: str, stage: str) -> None:
        """See `Reporter`."""

    def verdict(self, verdict: Verdict) -> None:
        """See `Reporter`."""
        from kbench.reports import terminal  # noqa: PLC0415 - rich costs 0.1 s, which JSON lines need not pay

        self._counts[verdict.status] = self._counts.get(verdict.status, 0) + 1
        self._out.print(terminal.verdict_line(verdict))

    def timing(self, verdict: Verdict, timings: Sequence[Timing]) -> None:
        """See `Reporter`."""
        from kbench.reports import terminal  # noqa: PLC0415 - see above

        if verdict.status is not Status.PASS or not timings:
            self.verdict(verdict)
            return
        self._counts[verdict.status] = self._counts.get(verdict.status, 0) + 1
        for timing in timings:
            self._out.print(terminal.timing_line(verdict, timing))

    def warning(self, text: str) -> None:
        """See `Reporter`."""
        self._err.print(f"warning: {text}", style="yellow", markup=False, highlight=False)

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
            TimeRemainingColumn(),
            TextColumn("{task.description}", markup=False),
            console=self._err,
            transient=True,
        )
        self._task = self._progress.add_task("starting", total=None)
        self._progress.start()

    def started(self, total: int) -> None:
        """See `Reporter`."""
        super().started(total)
        self._progress.update(self._task, total=total)

    def stage(self, label: str, stage: str) -> None:
        """See `Reporter`."""
        self._progress.update(self._task, description=f"{label}: {stage}")

    def verdict(self, verdict: Verdict) -> None:
        """See `Reporter`."""
        super().verdict(verdict)
        self._progress.advance(self._task)

    def timing(self, verdict: Verdict, timings: Sequence[Timing]) -> None:
        """See `Reporter`."""
        super().timing(verdict, timings)
        if verdict.status is Status.PASS and timings:
            self._progress.advance(self._task)

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
