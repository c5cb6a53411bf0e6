"""Pairs of small models timed by kbench itself: its engine, its processes, its clock."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbench import discovery, samples
from kbench.config import Config, cache_folder
from kbench.engines.job import Events, Job, Options, Result
from kbench.engines.local import LocalEngine
from kbench.engines.timing import MOST_PAIRS_OF_PROCESSES
from kbench.records import Task, Timing

_SOURCE = """import time
import torch

D = "{device}"

class {name}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {args}):
        {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A model: what its forward returns, from which inputs; `{c}` in it may differ between the sides."""

    forward: str
    inputs: str
    init: str = "pass"
    args: str = "x"

    def source(self, name: str, device: str) -> str:
        """Give it as a file, its class called `name`."""
        return _SOURCE.format(device=device, name=name, init=self.init, forward=self.forward, args=self.args, inputs=self.inputs)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A reference, a candidate, and in how many pairs of fresh processes they are timed."""

    name: str
    reference: Kind
    candidate: Kind
    processes: int = 1
    precision: float = 0.01


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a pair: the timing over all processes, or why there is none.

    `alone` is what each pair of processes says by itself, `runs` what `kbench time` says, which takes as many of
    them as it needs: the processes of one run are those of no other.
    """

    pair: Pair
    problem: str
    timing: Timing | None
    alone: list[dict[str, Any]]
    runs: list[dict[str, Any]]


class _Collect(Events):
    def __init__(self) -> None:
        self.results: list[Result] = []

    def result(self, result: Result) -> None:
        self.results.append(result)
        # What is known already, should the rest never come.
        for timing in result.timings:
            parts = [samples.conclude(part) for part in samples.parted(timing.samples)]
            told = [f"{part['speedup']:.4f}+-{(part['speedup_high'] - part['speedup_low']) / 2:.4f}" for part in parts]
            seconds = f"{timing.reference_s * 1e6:.2f} us, {timing.pairs} pairs, {timing.extra.get('spent_s')}"
            print(f"     {result.job.task.name}: {timing.verdict} {timing.speedup:.4f}, {seconds}: {' '.join(told)}", file=sys.stderr, flush=True)


def time_pairs(pairs: Sequence[Pair], *, device: str) -> list[Outcome]:
    """Verify and time pairs one after the other on a device, `cpu` or `cuda:0`."""
    collected = _Collect()
    with tempfile.TemporaryDirectory() as folder:
        jobs = [_job(pair, Path(folder), device) for pair in pairs]

        async def run() -> None:
            engine = LocalEngine(Options(jobs=1, seed=7, cache=cache_folder()), collected)
            try:
                await engine.start()
                await engine.run(jobs)
            finally:
                await engine.close()

        asyncio.run(run())
    by_name = {result.job.task.name: result for result in collected.results}
    return [_outcome(pair, by_name.get(pair.name)) for pair in pairs]


def _job(pair: Pair, folder: Path, device: str) -> Job:
    kind = device.partition(":")[0]
    reference, candidate = folder / f"{pair.name}.py", folder / f"{pair.name}_new.py"
    reference.write_text(pair.reference.source("Model", kind))
    candidate.write_text(pair.candidate.source("ModelNew", kind))
    found = discovery.discover_pair(reference, candidate)
    task = Task(name=pair.name, reference=reference, cases=found.tasks[0].cases)
    overrides = {"processes": pair.processes, "precision": pair.precision, "timeout_s": 3000.0}
    settings = Config().settings_for(pair.name, overrides)
    chosen = dataclasses.replace(found.candidates[0], task=pair.name)
    return Job(task=task, candidate=chosen, device=device, settings=settings, cases=task.cases, timed=("default",))


def _outcome(pair: Pair, result: Result | None) -> Outcome:
    if result is None or not result.timings:
        verdict = result.verdict if result else None
        problem = f"{verdict.status} {verdict.reason}: {verdict.detail}" if verdict else "no result"
        return Outcome(pair=pair, problem=problem, timing=None, alone=[], runs=[])
    timing = result.timings[0]
    parts = samples.parted(timing.samples)
    return Outcome(pair=pair, problem="", timing=timing, alone=list(map(samples.conclude, parts)), runs=list(_runs(parts)))


def _runs(parts: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    taken: list[dict[str, Any]] = []
    for part in parts:
        taken.append(part)
        together = samples.joined(taken)
        if len(taken) == MOST_PAIRS_OF_PROCESSES or samples.is_settled(together):
            yield samples.conclude(together)
            taken = []
    if taken and len(taken) == len(parts):
        yield samples.conclude(samples.joined(taken))
