"""Stored rows → a page: one file a format, and one line here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kbench.records import TimingRow, VerdictRow
from kbench.reports import markdown
from kbench.store import Problem


class Report(Protocol):
    """What turns stored rows into a text."""

    def __call__(
        self,
        timings: Sequence[TimingRow],
        verdicts: Sequence[VerdictRow],
        problems: Sequence[Problem],
        *,
        all_rows: bool = False,
        recomputed: Sequence[str] | None = None,
    ) -> str:
        """Render the latest row of each candidate, or all rows; `recomputed` says what differed from the stored rows."""


REPORTS: dict[str, Report] = {"markdown": markdown.render}
