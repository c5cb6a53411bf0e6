"""This machine's engine: lanes of one judge each, candidates in processes of their own.

A lane takes each job through the stages, a file for each: its extensions are built in a process without a GPU
(`build`), it is judged (`verify`, then `contracts` and `sanitize` where asked for), and, if it was accepted and a time
was asked for, it is timed while nothing else runs (`timing`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from kbench.engines.build import Builds
from kbench.engines.job import Events, Job, Options, Result
from kbench.engines.lane import Lane, Prefetched
from kbench.engines.machine import Machine
from kbench.engines.queue import ANY_GPU, CPU, Queue
from kbench.records import Status


class LocalEngine:
    """Runs jobs on this machine's CPU and GPUs."""

    def __init__(self, options: Options, events: Events) -> None:
        self.machine = Machine(options, events)
        self.builds = Builds(self.machine)
        self.prefetched: Prefetched = {}
        self._stop = False

    async def start(self) -> None:
        """Start the zygote and find out what this machine is.

        Raises:
            MachineError: torch cannot be imported, say.
        """
        await self.machine.start()

    async def close(self) -> None:
        """End every process."""
        await self.machine.close()

    async def run(self, jobs: Sequence[Job]) -> None:
        """Run every job; results go to the events as they come."""
        queue = Queue(jobs)
        try:
            async with asyncio.TaskGroup() as group:
                for place in self.places(queue.pools()):
                    group.create_task(self._work(Lane(self.machine, self.builds, self.prefetched, queue, place)))
        except BaseExceptionGroup as errors:
            # The others were cancelled because of the first.
            raise errors.exceptions[0] from None
        finally:
            self.builds.cancel()
            for process in self.prefetched.values():
                process.drop()

    async def _work(self, lane: Lane) -> None:
        """Give a lane jobs until there are none."""
        try:
            while not self._stop and (job := lane.take()) is not None:
                self._done(await lane.run(job))
        finally:
            await lane.close()

    def _done(self, result: Result) -> None:
        """Tell a result; a failure may be the last one wanted."""
        self.machine.events.result(result)
        if self.machine.options.fail_fast and result.verdict.status in (Status.FAIL, Status.ERROR):
            self._stop = True

    def places(self, pools: Mapping[str, int]) -> list[str]:
        """One place for each lane: some on the CPU, some on each GPU, no more than there are jobs for."""
        lanes = [CPU] * min(self.machine.options.jobs, pools.get(CPU, 0))
        alike = self._alike() if pools.get(ANY_GPU) else []
        movable = pools.get(ANY_GPU, 0)
        for place in dict.fromkeys([*(pool for pool in pools if pool not in (CPU, ANY_GPU)), *alike]):
            count = pools.get(place, 0) + (movable if place in alike else 0)
            lanes += [place] * min(self.machine.options.gpu_jobs, count)
        return lanes

    def _alike(self) -> list[str]:
        """The GPUs that are like the first: only among them is it all the same where a candidate runs."""
        kinds = [(gpu["name"], gpu.get("memory_bytes")) for gpu in self.machine.facts["gpus"]]
        return [f"cuda:{index}" for index, kind in enumerate(kinds) if kind == kinds[0]]
