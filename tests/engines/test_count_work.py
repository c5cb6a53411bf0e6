"""A reference's work, counted in a real process of its own on a machine that need have no GPU."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kbench import discovery
from kbench.config import Config
from kbench.engines.job import Events, Job, Options
from kbench.engines.judge import count_work, opening_of
from kbench.engines.machine import Machine
from kbench.records import Case

REFERENCE = """
import torch
CASES = {"default": {}, "huge": {"inputs": {"n": 1000000}, "devices": ["cuda"]}, "data": {"inputs": {"keep": True}}}
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 32)
    def forward(self, x, keep):
        y = self.layer(x)
        return y[y > 0] if keep else y
def get_inputs(n=8, keep=False):
    return [torch.randn(n, 16), keep]
def get_init_inputs():
    return []
"""


def counted(tmp_path: Path, reference: str) -> dict[str, Any]:
    (tmp_path / "reference.py").write_text(reference)
    (tmp_path / "candidate.py").write_text("class ModelNew: ...")
    found = discovery.discover_pair(tmp_path / "reference.py", tmp_path / "candidate.py")
    task, candidate = found.tasks[0], found.candidates[0]
    timed = tuple(case.name for case in task.cases) or (Case().name,)
    settings = Config().settings_for(task.name, {})
    job = Job(task=task, candidate=candidate, device="cuda:0", settings=settings, cases=task.cases, timed=timed)

    async def run() -> dict[str, Any]:
        machine = Machine(Options(jobs=1, seed=3, cache=tmp_path / "cache"), Events())
        try:
            await machine.start()
            return await count_work(machine, job, opening_of(machine, job, 1))
        finally:
            await machine.close()

    return asyncio.run(run())


def test_every_case_is_counted_by_its_shapes_or_left_to_the_judge(tmp_path: Path) -> None:
    work = counted(tmp_path, REFERENCE)

    assert work["default"]["flops"] == {"float32": 2 * 8 * 16 * 32}
    assert work["huge"]["read_bytes"] == 4 * (16 * 10**6 + 16 * 32 + 32)
    assert work["huge"]["how"] == "meta"
    assert work["data"] is None


def test_a_reference_that_ends_its_process_is_left_to_the_judge(tmp_path: Path) -> None:
    assert counted(tmp_path, REFERENCE + "\nimport os\nos._exit(3)\n") == {}
