"""Judge some jobs with an engine of their own, started for them and ended after them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kbench.engines.job import Events, Job, Options, Result
from kbench.engines.local import LocalEngine


class _Collect(Events):
    def __init__(self) -> None:
        self.results: list[Result] = []

    def result(self, result: Result) -> None:
        self.results.append(result)


def judge(jobs: Sequence[Job], options: Options, *, before: Sequence[Job] = ()) -> list[Result]:
    """Run the jobs and give their results in the order in which they came; `before` is run first, for what it builds.

    Raises:
        MachineError: the engine does not start here.
    """
    collected = _Collect()

    async def run() -> None:
        engine = LocalEngine(options, collected)
        try:
            await engine.start()
            await engine.run(before)
            collected.results.clear()
            await engine.run(jobs)
        finally:
            await engine.close()

    asyncio.run(run())
    return collected.results
