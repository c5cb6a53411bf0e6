"""Which job comes next, and where? Jobs of one task stay together: one judge serves them."""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from kbench.engines.job import Job
from kbench.records import is_gpu

CPU = "cpu"
# Jobs that any of several equal GPUs may take.
ANY_GPU = "cuda"

Bucket = tuple[str, str]


class Queue:
    """Jobs by task and pool, each in its order.

    A lane works in a *place* (`cpu`, `cuda:0`, …) and takes from the pools that it serves: its own, and for a GPU
    those that any GPU may take. A job that is taken names the place where it runs.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._buckets: dict[Bucket, deque[Job]] = {}
        for job in jobs:
            self._buckets.setdefault((job.task.name, pool_of(job)), deque()).append(job)
        self._lanes: Counter[Bucket] = Counter()

    def pools(self) -> Counter[str]:
        """How many jobs wait in each pool."""
        return Counter({pool: sum(len(jobs) for (_, other), jobs in self._buckets.items() if other == pool) for _, pool in self._buckets})

    def take(self, place: str, bucket: Bucket | None) -> tuple[Job, Bucket] | None:
        """The next job of the bucket that a lane has worked on, else of the one that fewest lanes work on."""
        if bucket is not None and self._buckets[bucket]:
            return _in_place(self._buckets[bucket].popleft(), place), bucket
        if bucket is not None:
            self._lanes[bucket] -= 1
        waiting = [other for other in self._served(place) if self._buckets[other]]
        if not waiting:
            return None
        chosen = min(waiting, key=lambda other: self._lanes[other])
        self._lanes[chosen] += 1
        return _in_place(self._buckets[chosen].popleft(), place), chosen

    def upcoming(self, place: str, bucket: Bucket, count: int) -> list[Job]:
        """The jobs that a lane is likely to take next, without taking them."""
        others = (other for other in self._served(place) if other != bucket)
        found: Iterator[Job] = chain(self._buckets[bucket], *(self._buckets[other] for other in others))
        return [_in_place(job, place) for job in islice(found, count)]

    def _served(self, place: str) -> list[Bucket]:
        pools = (place,) if place == CPU else (place, ANY_GPU)
        return [bucket for bucket in self._buckets if bucket[1] in pools]


def pool_of(job: Job) -> str:
    """Where a job may run; what is only built needs no GPU."""
    if job.skip or not is_gpu(job.device):
        return CPU
    return ANY_GPU if job.movable else job.device


def _in_place(job: Job, place: str) -> Job:
    return dataclasses.replace(job, device=place, movable=False) if job.movable and place != CPU else job
