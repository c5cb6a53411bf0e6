"""Which lane gets which job, on machines of one and of several GPUs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kbench.config import TaskSettings
from kbench.engines.job import Events, Job, Options
from kbench.engines.local import LocalEngine
from kbench.engines.queue import ANY_GPU, CPU, Queue
from kbench.records import Candidate, Task

H200: dict[str, Any] = {"name": "NVIDIA H200", "uuid": "GPU-0", "memory_bytes": 1}
SMALL: dict[str, Any] = {"name": "NVIDIA T4", "uuid": "GPU-1", "memory_bytes": 1}


def job(task: str, name: str, device: str = CPU, *, movable: bool = False, skip: str = "") -> Job:
    path = Path("x.py")
    return Job(
        task=Task(name=task, reference=path),
        candidate=Candidate(task=task, name=name, source=path),
        device=device,
        settings=TaskSettings(),
        cases=(),
        movable=movable,
        skip=skip,
    )


def drain(queue: Queue, place: str) -> list[tuple[str, str]]:
    """Every job that one lane gets, and where it runs."""
    found, bucket = [], None
    while (taken := queue.take(place, bucket)) is not None:
        found.append((taken[0].candidate.name, taken[0].device))
        bucket = taken[1]
    return found


def test_a_lane_stays_with_its_task_and_lanes_spread_over_tasks() -> None:
    queue = Queue([job("a", "1"), job("b", "2"), job("a", "3"), job("b", "4")])
    one = queue.take(CPU, None)
    other = queue.take(CPU, None)
    assert one is not None
    assert other is not None

    assert (one[0].candidate.name, other[0].candidate.name) == ("1", "2")
    assert [found.candidate.name for found in queue.upcoming(CPU, other[1], 9)] == ["4", "3"]
    again = queue.take(CPU, one[1])
    assert again is not None
    assert again[0].candidate.name == "3"
    assert drain(queue, CPU) == [("4", CPU)]


def test_each_job_goes_to_a_lane_of_its_place_and_a_movable_one_to_any_gpu() -> None:
    queue = Queue(
        [
            job("a", "on_cpu"),
            job("a", "anywhere", "cuda:0", movable=True),
            job("a", "only_there", "cuda:1"),
            job("a", "built_only", "cuda", skip="no GPU"),
        ]
    )

    assert queue.pools() == {CPU: 2, ANY_GPU: 1, "cuda:1": 1}
    assert drain(queue, "cuda:1") == [("anywhere", "cuda:1"), ("only_there", "cuda:1")]
    assert drain(queue, CPU) == [("on_cpu", CPU), ("built_only", "cuda")]


@pytest.mark.parametrize(
    ("gpus", "jobs", "expected"),
    [
        ([], [job("a", "1"), job("a", "2"), job("a", "3")], [CPU, CPU]),
        ([], [job("a", "1")], [CPU]),
        ([H200], [job("a", str(i), "cuda:0", movable=True) for i in range(3)], ["cuda:0"]),
        ([H200, H200], [job("a", str(i), "cuda:0", movable=True) for i in range(3)], ["cuda:0", "cuda:1"]),
        # Times on another kind of GPU are no times to compare.
        ([H200, SMALL, H200], [job("a", str(i), "cuda:0", movable=True) for i in range(3)], ["cuda:0", "cuda:2"]),
        ([H200, H200], [job("a", str(i), "cuda:1") for i in range(3)], ["cuda:1"]),
        ([H200], [job("a", "1", "cuda:0", movable=True), job("a", "2")], [CPU, "cuda:0"]),
        ([H200], [job("a", "1", "cuda:9", skip="no such GPU")], [CPU]),
    ],
)
def test_there_is_a_lane_for_each_gpu_that_jobs_may_use(gpus: list[dict[str, Any]], jobs: list[Job], expected: list[str], tmp_path: Path) -> None:
    engine = LocalEngine(Options(jobs=2, seed=1, cache=tmp_path), Events())
    engine.machine.facts = {"gpus": gpus}
    found = engine.places(Queue(jobs).pools())
    asyncio.run(engine.close())

    assert found == expected
