"""The corpus: what is in it, what is right for each candidate, and whether a verdict is that."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from kbench.records import Candidate, Status, Task, Timing, Verdict

CORPUS = Path(__file__).parent / "corpus"
_REFERENCE = "reference.py"


class Assessment(StrEnum):
    """How the verdict on a candidate of the corpus compares with what is right for it."""

    CAUGHT = "caught"
    MISSED = "missed"
    FALSE_ALARM = "false alarm"
    OK = "ok"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What is right for a candidate: the literal `EXPECT` of its file.

    `reasons` are all acceptable ones. `run` is `time` where only the clock, or the comparing of timed
    outputs, can tell. With `max_speedup`, a pass is right too, as long as no greater speed-up is
    claimed: the trick then gains nothing. `policy` marks what a task may refuse and kbench, by itself,
    only reports or holds against the task's own rules.
    """

    status: Status
    reasons: tuple[str, ...] = ()
    run: str = "verify"
    devices: tuple[str, ...] = ("cpu",)
    max_speedup: float | None = None
    policy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One candidate of the corpus; `mechanism` says in one line what it does."""

    task: Task
    candidate: Candidate
    mechanism: str
    expectation: Expectation


def discover_corpus(folder: Path = CORPUS) -> list[Entry]:
    """Read every candidate's expectation; no candidate is imported.

    Raises:
        ValueError: a file has no docstring or no literal `EXPECT` of the known form.

    """
    return [
        _read_entry(path, reference)
        for reference in sorted(folder.glob(f"*/{_REFERENCE}"))
        for path in sorted(reference.parent.glob("*.py"))
        if path.name != _REFERENCE
    ]


def _read_entry(path: Path, reference: Path) -> Entry:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    mechanism = ast.get_docstring(tree)
    if not mechanism:
        raise ValueError(f"{path}: no docstring that names the mechanism")
    group = reference.parent.name
    expectation = _expectation(_literal(tree, path), path)
    candidate = Candidate(
        task=group,
        name=path.stem,
        source=path,
        language=_language(text),
        devices=expectation.devices,
    )
    return Entry(
        task=Task(name=group, reference=reference),
        candidate=candidate,
        mechanism=mechanism,
        expectation=expectation,
    )


def _literal(tree: ast.Module, path: Path) -> dict[str, Any]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "EXPECT":
            found = ast.literal_eval(node.value)
            if isinstance(found, dict):
                return found
    raise ValueError(f"{path}: no literal `EXPECT = {{…}}`")


def _expectation(fields: dict[str, Any], path: Path) -> Expectation:
    try:
        return Expectation(
            status=Status(fields.pop("status")),
            reasons=tuple(fields.pop("reason", ())),
            devices=tuple(fields.pop("devices")),
            **fields,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: EXPECT is not of the known form: {error}") from None


def _language(text: str) -> str:
    """Which compiler a candidate needs; it decides who builds it beforehand."""
    if "cuda_sources" in text:
        return "cuda"
    if "cpp_extension" in text:
        return "cpp"
    return "triton" if "@triton.jit" in text else "torch"


def assess(expectation: Expectation, verdict: Verdict, timings: Sequence[Timing] = ()) -> Assessment:
    """Hold a verdict, and the times where there are any, against what is right."""
    if verdict.status is Status.SKIP:
        return Assessment.SKIPPED
    if expectation.status is Status.PASS:
        return Assessment.OK if verdict.status is Status.PASS else Assessment.FALSE_ALARM
    if verdict.status is expectation.status and verdict.reason in expectation.reasons:
        return Assessment.CAUGHT
    if verdict.status is Status.PASS and _gains_nothing(expectation, timings):
        return Assessment.CAUGHT
    return Assessment.MISSED


def _gains_nothing(expectation: Expectation, timings: Sequence[Timing]) -> bool:
    """Whether the time is an honest one: by the low end of the interval, so that noise is no miss."""
    limit = expectation.max_speedup
    return limit is not None and bool(timings) and all(timing.speedup_low <= limit for timing in timings)
