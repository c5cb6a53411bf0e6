"""Verdicts, times and the list of candidates, for a terminal.

Every text goes in as text, never as markup, and with its control codes made visible: a candidate's
name or error cannot colour, move or clear anything. Lines are meant to wrap; a console that is no
terminal should not wrap them (`soft_wrap=True`), so that one line stays one line for a program.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from kbench.records import Candidate, Comparison, Status, Task, Timing, Verdict
from kbench.reports.facts import gain, light, ratio
from kbench.reports.units import duration, energy, factor, interval
from kbench.store import visible

_STATUS_STYLES = {
    Status.PASS: "bold green",
    Status.FAIL: "bold red",
    Status.ERROR: "bold magenta",
    Status.SKIP: "bold yellow",
}
_COMPARISON_STYLES = {
    Comparison.FASTER: "bold green",
    Comparison.SLOWER: "bold red",
    Comparison.SAME: "bold",
    Comparison.UNRESOLVED: "bold yellow",
}
# Checks that are run where they are asked for.
_FAMILIES = ("contract:", "sanitize:")
_INDENT = "      "
# Details are cut here, not in the record.
_DETAIL_LIMIT = 400


def verdict_line(verdict: Verdict) -> Text:
    """Write a verdict: its status and candidate, why it is no pass, and what to know besides."""
    text = _headline(verdict.status, _STATUS_STYLES[verdict.status], verdict)
    if verdict.status is Status.PASS:
        facts = [_counted(verdict.trials, "trial"), *_more_checks(verdict), duration(verdict.seconds or None)]
        text.append("  " + ", ".join(fact for fact in facts if fact), "dim")
        exactness = next((check.detail for check in verdict.checks if check.name == "precision"), "")
        if exactness:
            _append_line(text, exactness, "dim")
    elif verdict.reason or verdict.detail:
        where = f"case {verdict.case}: "
        is_told = verdict.case in ("", "default") or verdict.detail.startswith(where)
        parts = [part for part in (verdict.reason, verdict.detail if is_told else where + verdict.detail) if part]
        _append_line(text, ": ".join(parts))
    for build in verdict.builds:
        for kernel in build.kernels:
            if kernel.spill_store_bytes or kernel.spill_load_bytes:
                spilled = f"{kernel.spill_store_bytes} bytes of stores and {kernel.spill_load_bytes} of loads"
                _append_line(text, f"{kernel.name}: {kernel.registers} registers, spills {spilled}", "dim")
    for warning in verdict.warnings:
        _append_line(text, f"warning: {warning}", "dim")
    return text


def timing_line(verdict: Verdict, timing: Timing) -> Text:
    """Write a time: the speed-up of one case with its interval, both times, and the flags."""
    text = _headline(timing.verdict, _COMPARISON_STYLES[timing.verdict], verdict)
    text.append(f"  {visible(timing.case)}", "dim")
    bounds = "too few pairs" if "few_pairs" in timing.flags else interval(timing.speedup_low, timing.speedup_high)
    times = f"{duration(timing.reference_s)} → {duration(timing.candidate_s)}"
    _append_line(text, f"{factor(timing.speedup)} ({bounds})  {times}")
    # The record has every note; only what was asked for is missed here.
    missed = [note for note in timing.notes if note.startswith("energy")]
    for line in (_besides(timing), [*timing.flags, *filter(None, [_gain(verdict.device, timing)])], missed):
        if line:
            _append_line(text, ", ".join(line), "dim")
    return text


def _besides(timing: Timing) -> list[str]:
    """What was measured besides the headline, on a GPU."""
    extra = timing.extra
    kinds = {"graph": "in a graph", "stream": "in a stream"}
    facts = [
        f"{name} {duration(reference)} → {duration(candidate)}"
        for kind, name in kinds.items()
        if isinstance(reference := extra.get(f"reference_{kind}_s"), float) and isinstance(candidate := extra.get(f"candidate_{kind}_s"), float)
    ]
    if facts and timing.reference_wall_s and timing.candidate_wall_s:
        facts.insert(0, f"wall {duration(timing.reference_wall_s)} → {duration(timing.candidate_wall_s)}")
    joules = (extra.get("reference_energy_j"), extra.get("candidate_energy_j"))
    if all(isinstance(value, float) for value in joules):
        facts.append(" → ".join(energy(value) for value in joules))
    if extra.get("candidate_kernels") is not None:
        facts.append(f"kernels {extra['reference_kernels']} → {extra['candidate_kernels']}")
    if bound := light(extra.get("sol_s"), extra.get("sol_bound"), timing.candidate_s):
        facts.append(bound if bound.endswith("bound") else f"speed of light {bound}")
    return facts


def _gain(device: str, timing: Timing) -> str:
    extra = timing.extra
    steady = ratio(extra.get("reference_graph_s"), extra.get("candidate_graph_s")) or ratio(
        extra.get("reference_stream_s"), extra.get("candidate_stream_s")
    )
    return gain(device, timing.speedup, ratio(timing.reference_wall_s, timing.candidate_wall_s), steady)


def list_table(tasks: Sequence[Task], candidates: Iterable[Candidate]) -> Table:
    """Tabulate what there is: each task with its cases, and its candidates by their selectors."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("Selector", "Language", "Devices", "Cases"):
        table.add_column(head, overflow="fold")
    of_task: dict[str, list[Candidate]] = {task.name: [] for task in tasks}
    for candidate in candidates:
        of_task.setdefault(candidate.task, []).append(candidate)
    cases = {task.name: ", ".join(case.name for case in task.cases) for task in tasks}
    errors = {task.name: task.error for task in tasks}
    for name, its_candidates in of_task.items():
        table.add_row(_text(name, "bold"), "", "", _text(cases.get(name, ""), "dim"))
        _add_error(table, errors.get(name, ""))
        for candidate in its_candidates:
            devices = _text(", ".join(candidate.runs_on))
            table.add_row(_text(candidate.label), _text(candidate.language), devices, "")
            _add_error(table, candidate.error)
    return table


def _add_error(table: Table, error: str) -> None:
    if error:
        table.add_row(_text(f"  {error[:_DETAIL_LIMIT]}", "red"), "", "", "")


def _headline(word: str, style: str, verdict: Verdict) -> Text:
    text = Text(overflow="fold")
    text.append(f"{word:<4}", style)
    text.append(f"  {visible(verdict.task)}/{visible(verdict.candidate)}")
    text.append(f"  {visible(verdict.device)}", "dim")
    return text


def _counted(number: int, what: str) -> str:
    """Count in words: `1 trial`, `5 trials`; nothing where there are none."""
    return f"{number} {what}{'' if number == 1 else 's'}" if number else ""


def _more_checks(verdict: Verdict) -> list[str]:
    """What was asked besides, in a few words: `8 of 9 contracts hold`, `sanitized by memcheck, racecheck`."""
    passed = {family: [check.name for check in verdict.checks if check.name.startswith(family) and check.status is Status.PASS] for family in _FAMILIES}
    asked = [check for check in verdict.checks if check.name.startswith("contract:") and check.status is not Status.SKIP]
    words = [f"{len(passed['contract:'])} of {len(asked)} contracts hold"] if asked else []
    if passed["sanitize:"]:
        words.append(f"sanitized by {', '.join(name.partition(':')[2] for name in passed['sanitize:'])}")
    return words


def _append_line(text: Text, line: str, style: str = "") -> None:
    line = visible(line)
    shortened = line if len(line) <= _DETAIL_LIMIT else line[: _DETAIL_LIMIT - 1] + "…"
    text.append(f"\n{_INDENT}{shortened}", style)


def _text(text: str, style: str = "") -> Text:
    return Text(visible(text), style, overflow="fold")
