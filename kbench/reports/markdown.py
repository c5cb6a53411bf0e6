"""What is known of every candidate, as a page of GitHub's markdown.

Every word that comes from a row stands in a code span: there it is text, whatever it says, and
neither markup, nor HTML, nor a link.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kbench import stats
from kbench.records import Status, TimingRow, VerdictRow
from kbench.reports.facts import gain, light, ratio
from kbench.reports.units import duration, factor, interval
from kbench.store import Problem, place, uncollected, visible

_COMPILED = "@compile"
# A detail longer than this is read in the CSV file.
_DETAIL_LIMIT = 240
_PROBLEMS_SHOWN = 20
# A mean needs more than one problem and a few values to say anything; its interval a few more.
_MEAN_LEAST = 3
_MEAN_INTERVAL_LEAST = 5
_CONFIDENCE = 0.95
# The names of the parts of an environment, in the order of `_environment`.
_VERSIONS = ("torch", "CUDA", "driver", "Python", "host", "kbench")

_MINUTE = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)", re.ASCII)
# What is nothing but text wherever it stands in a code span.
_HARMLESS = re.compile(r"[\w.,:;@+/-]+")
_BACKTICKS = re.compile(r"`+")
# A pipe ends a cell, in a code span too, unless an odd number of backslashes stands before it.
_LIVE_PIPE = re.compile(r"(?<!\\)((?:\\\\)*)\|")

_Key = tuple[str, str, str]
_Environment = tuple[str, str, str, str, str, str]
_Judged = TimingRow | VerdictRow


def render(
    timings: Sequence[TimingRow],
    verdicts: Sequence[VerdictRow],
    problems: Sequence[Problem],
    *,
    all_rows: bool = False,
    recomputed: Sequence[str] | None = None,
) -> str:
    """Write a table of times for each device, then what was not timed, not accepted or not readable.

    The latest row of each candidate counts, and where that is no pass, its earlier times are not
    shown; with `all_rows` every row is, and nothing is averaged. `recomputed` has a remark for each
    row that is not as it was stored; None where nothing was worked out again.
    """
    with uncollected():
        sections = [*_sections(timings, verdicts, problems, all_rows=all_rows), *_recomputed_section(recomputed)]
    if not sections:
        sections = ["There are no results yet; `kbench time` makes some."]
    return "\n\n".join(["# Results", *sections]) + "\n"


def _sections(
    timings: Sequence[TimingRow],
    verdicts: Sequence[VerdictRow],
    problems: Sequence[Problem],
    *,
    all_rows: bool,
) -> list[str]:
    selection = _all(timings, verdicts) if all_rows else _latest(timings, verdicts)
    return [
        *_timing_sections(selection.timed, averaged=not all_rows, changed=selection.changed),
        *_untimed_section(selection.untimed),
        *_rejected_section(selection.rejected),
        *_problem_section(problems),
    ]


@dataclass(slots=True, kw_only=True)
class _Selection:
    """The rows to show; `changed` names those whose candidate was verified with another source since."""

    timed: list[TimingRow] = field(default_factory=list)
    untimed: list[VerdictRow] = field(default_factory=list)
    rejected: list[_Judged] = field(default_factory=list)
    changed: set[_Key] = field(default_factory=set)


@dataclass(slots=True)
class _History:
    """What is known of a candidate on a device: its newest row, verdict, and time of each case."""

    newest: _Judged
    verdict: VerdictRow | None = None
    timings: dict[str, TimingRow] = field(default_factory=dict)


def _all(timings: Sequence[TimingRow], verdicts: Sequence[VerdictRow]) -> _Selection:
    judged: list[_Judged] = [*verdicts, *_rejected_timings(timings, verdicts)]
    return _Selection(
        timed=[row for row in timings if _passed(row)],
        rejected=[row for row in judged if not _passed(row)],
    )


def _latest(timings: Sequence[TimingRow], verdicts: Sequence[VerdictRow]) -> _Selection:
    selection = _Selection()
    for key, history in _histories(timings, verdicts).items():
        if not _passed(history.newest):
            selection.rejected.append(history.newest)
        elif history.timings:
            selection.timed += history.timings.values()
            if any(_is_of_other_source(row, history.verdict) for row in history.timings.values()):
                selection.changed.add(key)
        elif history.verdict:
            selection.untimed.append(history.verdict)
    return selection


def _histories(timings: Sequence[TimingRow], verdicts: Sequence[VerdictRow]) -> dict[_Key, _History]:
    histories: dict[_Key, _History] = {}
    for timing in timings:
        history = _history_with(histories, timing)
        if _passed(timing) and _is_newer(timing, history.timings.get(timing.case)):
            history.timings[timing.case] = timing
    for verdict in verdicts:
        history = _history_with(histories, verdict)
        if _is_newer(verdict, history.verdict):
            history.verdict = verdict
    return histories


def _history_with(histories: dict[_Key, _History], row: _Judged) -> _History:
    key = _key(row)
    history = histories.get(key)
    if history is None:
        history = histories[key] = _History(row)
    elif _is_newer(row, history.newest):
        history.newest = row
    return history


def _is_newer(row: _Judged, known: _Judged | None) -> bool:
    """Say whether a row is newer than one that stands before it; of equally old ones the last counts."""
    return known is None or row.started_at >= known.started_at


def _is_of_other_source(row: TimingRow, verdict: VerdictRow | None) -> bool:
    return verdict is not None and row.candidate_sha256 != verdict.candidate_sha256


def _rejected_timings(timings: Iterable[TimingRow], verdicts: Iterable[VerdictRow]) -> list[TimingRow]:
    """Keep those that have no verdict of their own run: baselines are timed only."""
    told = {(row.run_id, *_key(row)) for row in verdicts}
    return [row for row in timings if not _passed(row) and (row.run_id, *_key(row)) not in told]


def _key(row: _Judged) -> _Key:
    return row.task, row.candidate, place(row)


def _passed(row: _Judged) -> bool:
    return row.status == Status.PASS


# Times.


def _timing_sections(rows: list[TimingRow], *, averaged: bool, changed: set[_Key]) -> Iterable[str]:
    devices: dict[str, list[TimingRow]] = {}
    for row in rows:
        devices.setdefault(place(row), []).append(row)
    for device, its_rows in sorted(devices.items()):
        its_rows.sort(key=lambda row: (row.task, row.case, row.candidate))
        environments = _environments(its_rows)
        yield f"## {_code(device)}"
        yield _environment_text(environments)
        yield _timing_table(its_rows, environments, changed)
        if averaged:
            yield from _mean_line(its_rows)


def _timing_table(rows: Sequence[TimingRow], environments: Mapping[_Environment, int], changed: set[_Key]) -> str:
    # `@compile` always has its column, so that tables of several devices look alike.
    baselines = sorted({_COMPILED, *(row.candidate for row in rows if row.candidate.startswith("@") and row.candidate_s)})
    baselines_s = {(row.candidate, *_problem(row)): row.candidate_s for row in rows if row.candidate in baselines and row.candidate_s}
    heads = ["Task", "Case", "Candidate", "Verdict"]
    heads += ["Reference time:", "Candidate time:", "Speed-up:", "99 % interval:", *(f"Against `{name}`:" for name in baselines)]
    walls = any(row.reference_wall_s or row.candidate_wall_s for row in rows)
    heads += ["Reference wall:", "Candidate wall:"] if walls else []
    besides = {head: cell for head, cell in _BESIDES.items() if any(cell(row) for row in rows)}
    heads += besides
    heads += ["Flags", "When (UTC)"]
    heads += ["On"] if len(environments) > 1 else []

    def cells_of(row: TimingRow) -> list[str]:
        flags = row.flags.split()
        if changed and _key(row) in changed:
            flags.append("changed_since")
        cells = [
            *(_code(row.task), _code(row.case), _code(row.candidate), row.verdict),
            *(duration(row.reference_s), duration(row.candidate_s), factor(row.speedup)),
            "too few pairs" if "few_pairs" in flags else interval(row.speedup_low, row.speedup_high),
            *(_against(name, row, baselines_s) for name in baselines),
        ]
        cells += [duration(row.reference_wall_s), duration(row.candidate_wall_s)] if walls else []
        cells += [cell(row) for cell in besides.values()]
        cells += [", ".join(filter(None, [" ".join(map(_code, flags)), _gain(row)])), _when(row.started_at)]
        cells += [str(environments[_environment(row)])] if len(environments) > 1 else []
        return cells

    return _table(heads, map(cells_of, rows))


def _problem(row: TimingRow) -> tuple[str, str, str]:
    return row.task, row.case, row.reference_sha256


def _against(baseline: str, row: TimingRow, baselines_s: Mapping[tuple[str, str, str, str], float]) -> str:
    known_s = baselines_s.get((baseline, *_problem(row)))
    return "" if known_s is None or row.candidate == baseline or not row.candidate_s else factor(known_s / row.candidate_s)


def _steady(row: TimingRow) -> float | None:
    return ratio(row.reference_graph_s, row.candidate_graph_s)


def _gain(row: TimingRow) -> str:
    steady = _steady(row) or ratio(row.reference_stream_s, row.candidate_stream_s)
    return gain(row.device, row.speedup, ratio(row.reference_wall_s, row.candidate_wall_s), steady)


# Columns for what only a GPU has, each shown where any row has it.
_BESIDES: Mapping[str, Callable[[TimingRow], str]] = {
    "In a graph:": lambda row: factor(_steady(row)),
    "Kernels:": lambda row: "" if row.candidate_kernels is None else f"{row.reference_kernels} → {row.candidate_kernels}",
    "Speed of light:": lambda row: light(row.sol_s, row.sol_bound, row.candidate_s),
}


def _mean_line(rows: Sequence[TimingRow]) -> Iterable[str]:
    """Average the candidates' speed-ups, where they are several and of several problems."""
    averaged = [row for row in rows if not row.candidate.startswith("@") and _is_ratio(row.speedup)]
    ratios = [row.speedup for row in averaged if row.speedup is not None]
    problems = {(row.task, row.case) for row in averaged}
    if len(ratios) < _MEAN_LEAST or len(problems) < 2:  # noqa: PLR2004 - several
        return
    text = f"Geometric mean of {len(ratios)} speed-ups: {factor(stats.geometric_mean(ratios))}"
    if len(ratios) >= _MEAN_INTERVAL_LEAST:
        # Seeded, so that the same rows give the same page.
        bounds = stats.geometric_mean_interval(ratios, _CONFIDENCE, random.Random(0))  # noqa: S311
        text += f" (95 % interval over the candidates: {interval(bounds.low, bounds.high)})"
    yield text


def _is_ratio(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value > 0


def _environments(rows: Iterable[TimingRow]) -> dict[_Environment, int]:
    """Number the environments that rows were measured in, by first appearance."""
    numbers: dict[_Environment, int] = {}
    for row in rows:
        numbers.setdefault(_environment(row), len(numbers) + 1)
    return numbers


def _environment(row: TimingRow) -> _Environment:
    return row.torch, row.cuda, row.driver, row.python, row.host, row.kbench_version


def _environment_text(environments: Iterable[_Environment]) -> str:
    texts = [
        ", ".join(f"{name} {_code(value)}" for name, value in zip(_VERSIONS, values, strict=True) if value) or "unknown versions"
        for values in environments
    ]
    if len(texts) == 1:
        return f"Measured with {texts[0]}."
    return "\n".join(["Measured with", "", *(f"{i}. {text}" for i, text in enumerate(texts, start=1))])


# What has no times.


def _untimed_section(rows: list[VerdictRow]) -> Iterable[str]:
    if not rows:
        return
    yield "## Accepted, not timed"
    heads = ["Task", "Candidate", "Device", "Cases:", "When (UTC)"]
    yield _table(
        heads,
        [[_code(row.task), _code(row.candidate), _code(place(row)), _cases(row), _when(row.started_at)] for row in sorted(rows, key=_key)],
    )


def _cases(row: VerdictRow) -> str:
    return "" if row.cases_passed is None else f"{row.cases_passed} of {row.cases_total}"


def _rejected_section(rows: list[_Judged]) -> Iterable[str]:
    if not rows:
        return
    yield "## Not accepted"
    heads = ["Task", "Candidate", "Device", "Status", "Reason", "Case", "Detail", "When (UTC)"]
    yield _table(
        heads,
        [
            [
                *(_code(row.task), _code(row.candidate), _code(place(row)), row.status),
                *(_code(row.reason), _code(row.case), _code(_shortened(row.detail)), _when(row.started_at)),
            ]
            for row in sorted(rows, key=lambda row: (_key(row), row.started_at))
        ],
    )


def _problem_section(problems: Sequence[Problem]) -> Iterable[str]:
    if not problems:
        return
    yield "## Lines that could not be read"
    lines = [f"- {_code(f'{problem.file.name}:{problem.line}')} {_code(_shortened(problem.message))}" for problem in problems[:_PROBLEMS_SHOWN]]
    if len(problems) > _PROBLEMS_SHOWN:
        lines.append(f"- and {len(problems) - _PROBLEMS_SHOWN} more")
    yield "\n".join(lines)


def _recomputed_section(remarks: Sequence[str] | None) -> Iterable[str]:
    if remarks is None:
        return
    yield "## Worked out again from the raw samples"
    lines = [f"- {_code(_shortened(remark))}" for remark in remarks[:_PROBLEMS_SHOWN]]
    if len(remarks) > _PROBLEMS_SHOWN:
        lines.append(f"- and {len(remarks) - _PROBLEMS_SHOWN} more")
    yield "\n".join(lines) or "Every time is as it was stored."


# Markdown.


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Draw a table; a head that ends with a colon is that of a column of numbers."""
    rules = ["---:" if head.endswith(":") else "---" for head in heads]
    lines = itertools.chain([[head.removesuffix(":") for head in heads], rules], rows)
    return "\n".join([f"| {' | '.join(line)} |" for line in lines])


def _code(text: str) -> str:
    """Put a text in a code span that it cannot leave; nothing where there is no text."""
    if _HARMLESS.fullmatch(text):
        return f"`{text}`"
    text = visible(text).strip()
    if not text:
        return ""
    text = _LIVE_PIPE.sub(r"\1\\|", text)
    longest = max(map(len, _BACKTICKS.findall(text)), default=0)
    fence = "`" * (longest + 1)
    space = " " if longest else ""
    return f"{fence}{space}{text}{space}{fence}"


def _shortened(text: str) -> str:
    return text if len(text) <= _DETAIL_LIMIT else text[: _DETAIL_LIMIT - 1] + "…"


@functools.lru_cache(maxsize=1024)
def _when(started_at: str) -> str:
    found = _MINUTE.match(started_at)
    return f"{found[1]} {found[2]}" if found else _code(started_at)
