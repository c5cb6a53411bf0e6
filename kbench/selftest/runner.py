"""Run the corpus through the engine, as any other candidates, and say what was caught."""

from __future__ import annotations

import asyncio
import difflib
import fnmatch
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbench.config import TaskSettings
from kbench.engines.job import Events, Job, Options, Result
from kbench.engines.local import LocalEngine
from kbench.errors import NothingSelectedError
from kbench.outcome import EXIT_FAIL, EXIT_NOTHING, EXIT_PASS
from kbench.records import Status, Verdict
from kbench.selftest.expectations import Assessment, Entry, assess, discover_corpus

# Pairs a timed candidate: enough for several compared outputs and a narrow interval, and soon over.
_REPEAT = 24
# No candidate of the corpus needs a tenth of it, but for torch.compile on a cold machine.
_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one candidate of the corpus on one device."""

    entry: Entry
    device: str
    assessment: Assessment
    result: Result | None = None

    @property
    def found(self) -> str:
        """The verdict in a few words: `fail: values`, `pass, 1.02x`, `skip`."""
        if self.result is None:
            return "skip"
        verdict = self.result.verdict
        words = f"{verdict.status}: {verdict.reason}" if verdict.reason else str(verdict.status)
        return ", ".join([words, *(f"{timing.speedup:.2f}x" for timing in self.result.timings)])


def named(names: Sequence[str]) -> frozenset[str]:
    """The labels in the corpus that are named, by globs over `group/name`; all where none is.

    Raises:
        NothingSelectedError: a name matches nothing.
    """
    entries = discover_corpus()
    labels = [entry.candidate.label for entry in entries]
    found = set() if names else set(labels)
    for name in names:
        matched = fnmatch.filter(labels, name)
        if not matched:
            known = [*labels, *(f"{entry.task.name}/*" for entry in entries)]
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean `{close[0]}`?" if close else f"a name is a glob over group/name, such as `{labels[0]}`"
            raise NothingSelectedError(f"`{name}` matches nothing in the corpus", hint=hint)
        found.update(matched)
    return frozenset(found)


def run_selftest(
    *,
    seed: int,
    cache: Path,
    jobs: int | None = None,
    wanted: Callable[[Entry], bool] | None = None,
    sandbox: str = "auto",
    tell: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """Judge, and where only the clock can tell also time, every wanted candidate that can run here.

    `tell` hears of each outcome as it comes; one whose device is not there is `skipped`.

    Raises:
        MachineError: the workers do not start.

    """
    entries = [entry for entry in discover_corpus() if wanted is None or wanted(entry)]
    options = Options(
        jobs=jobs or max(1, len(os.sched_getaffinity(0))),
        seed=seed,
        cache=cache,
        repeat=_REPEAT,
        examine=False,
        sandbox=sandbox,
        hidden=tuple({entry.task.reference for entry in entries}),
    )
    return asyncio.run(_Selftest(entries, options, tell).run())


class _Selftest(Events):
    def __init__(self, entries: Sequence[Entry], options: Options, tell: Callable[[Outcome], None] | None) -> None:
        self._entries = {entry.candidate.label: entry for entry in entries}
        self._engine = LocalEngine(options, self)
        self._tell = tell
        self._outcomes: list[Outcome] = []

    async def run(self) -> list[Outcome]:
        try:
            await self._engine.start()
            jobs = [job for entry in self._entries.values() for job in self._jobs(entry)]
            await self._engine.run(jobs)
        finally:
            await self._engine.close()
        return self._outcomes

    def _jobs(self, entry: Entry) -> Iterator[Job]:
        for kind in entry.expectation.devices:
            if kind == "cuda" and not self._engine.machine.facts["gpus"]:
                self._add(Outcome(entry=entry, device=kind, assessment=Assessment.SKIPPED))
                continue
            cases = entry.task.cases
            yield Job(
                task=entry.task,
                candidate=entry.candidate,
                device="cuda:0" if kind == "cuda" else kind,
                settings=TaskSettings(timeout_s=_TIMEOUT_S),
                cases=cases,
                timed=tuple(case.name for case in cases) if entry.expectation.run == "time" else (),
            )

    def result(self, result: Result) -> None:
        """See `Events`."""
        entry = self._entries[result.job.candidate.label]
        assessment = assess(entry.expectation, result.verdict, result.timings)
        self._add(Outcome(entry=entry, device=result.job.device, assessment=assessment, result=result))

    def _add(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        if self._tell is not None:
            self._tell(outcome)


def is_sound(outcomes: Sequence[Outcome]) -> bool:
    """Nothing was missed, and nobody was refused without a fault."""
    return not any(outcome.assessment in (Assessment.MISSED, Assessment.FALSE_ALARM) for outcome in outcomes)


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """Of the command: whether all is sound, and whether anything could be run at all."""
    if all(outcome.assessment is Assessment.SKIPPED for outcome in outcomes):
        return EXIT_NOTHING
    return EXIT_PASS if is_sound(outcomes) else EXIT_FAIL


def table(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """Count by kind of mechanism what was caught, missed, refused without a fault: a header, then one row a kind."""
    counts: dict[str, Counter[Assessment]] = {}
    for outcome in outcomes:
        counts.setdefault(_kind(outcome.entry), Counter())[outcome.assessment] += 1
    rows = [(kind, *(str(counts[kind][column]) for column in Assessment)) for kind in sorted(counts)]
    return [("kind", *Assessment), *rows]


def surprises(outcomes: Sequence[Outcome]) -> list[str]:
    """One line for each outcome that is not right: what it does, what was found, what is right."""
    return [
        f"{outcome.assessment}: {outcome.entry.candidate.label} on {outcome.device}: found `{outcome.found}`, "
        f"right is `{_right(outcome.entry)}`. {outcome.entry.mechanism} {_detail(outcome.result)}".rstrip()
        for outcome in outcomes
        if outcome.assessment in (Assessment.MISSED, Assessment.FALSE_ALARM)
    ]


_KINDS = {
    "time": "timing",
    "mem": "memory",
    "cache": "caching",
    "sem": "semantic",
    "harness": "harness",
    "fall": "fallback",
    "bug": "bugs",
    "robust": "robustness",
}


def _kind(entry: Entry) -> str:
    expectation = entry.expectation
    if expectation.policy:
        return "policy"
    if expectation.status is Status.PASS:
        return "honest"
    return _KINDS.get(entry.candidate.name.partition("_")[0], "task")


def _right(entry: Entry) -> str:
    expectation = entry.expectation
    words = " or ".join([f"{expectation.status}: {reason}" for reason in expectation.reasons] or [expectation.status])
    return words if expectation.max_speedup is None else f"{words}, or pass below {expectation.max_speedup:g}x"


def _detail(result: Result | None) -> str:
    verdict: Verdict | None = result.verdict if result is not None else None
    return f"({verdict.detail[:300]})" if verdict is not None and verdict.detail else ""
