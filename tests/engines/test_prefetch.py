"""The next candidate's process is there before its turn; nobody gets another's, and none is left over.

Only GPU lanes do so. Here the lane of the CPU is taken for one.
"""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from kbench import discovery
from kbench.config import TaskSettings
from kbench.engines import lane
from kbench.engines.candidate import CandidateProcess
from kbench.engines.job import Events, Job, Options, Result
from kbench.engines.local import LocalEngine

REFERENCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1

def get_inputs():
    return [torch.randn(4)]

def get_init_inputs():
    return []
"""
GOOD = REFERENCE.split("def get_inputs")[0].replace("Model(", "ModelNew(")
CANDIDATES = {
    "a_right": GOOD,
    "b_crashes": GOOD.replace("return", "import os; os.abort()\n        return"),
    "c_wrong": GOOD.replace("+ 1", "+ 2"),
    "d_not_loaded": "raise ValueError('no')\n" + GOOD,
    "e_not_built": "from torch.utils.cpp_extension import load\nload('x', [__file__[:-3] + '/x.cpp'])\n" + GOOD,
    "f_right": GOOD,
}


class _Collect(Events):
    def __init__(self) -> None:
        self.found: dict[str, tuple[str, str]] = {}

    def result(self, result: Result) -> None:
        self.found[result.job.candidate.name] = (result.verdict.status, result.verdict.reason)


def test_every_candidate_is_judged_in_a_process_of_its_own_that_was_there_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "CPU", "no place")
    (tmp_path / "t.py").write_text(REFERENCE)
    (tmp_path / "e_not_built").mkdir()
    (tmp_path / "e_not_built/x.cpp").write_text("#error no\n")
    jobs = []
    for name, text in CANDIDATES.items():
        (tmp_path / f"{name}.py").write_text(text)
        found = discovery.discover_pair(tmp_path / "t.py", tmp_path / f"{name}.py")
        jobs.append(
            Job(task=found.tasks[0], candidate=found.candidates[0], device="cpu", settings=TaskSettings(timeout_s=300.0), cases=found.tasks[0].cases)
        )
    # As if this one was built, too, on the way to its process.
    jobs[2] = dataclasses.replace(jobs[2], candidate=dataclasses.replace(jobs[2].candidate, language="cpp"))
    collected = _Collect()
    started: list[Any] = []
    open_for_judge = CandidateProcess.open_for_judge

    def counted(process: CandidateProcess) -> int:
        started.append((process, process._judge_fd is not None))
        return open_for_judge(process)

    monkeypatch.setattr(CandidateProcess, "open_for_judge", counted)

    async def run() -> dict[Any, Any]:
        engine = LocalEngine(Options(jobs=1, gpu_jobs=1, seed=1, cache=tmp_path / "cache", hidden=()), collected)
        try:
            await engine.start()
            await engine.run(jobs)
        finally:
            await engine.close()
        return engine.prefetched

    left = asyncio.run(run())

    assert collected.found == {
        "a_right": ("pass", ""),
        "b_crashes": ("fail", "crash"),
        "c_wrong": ("fail", "values"),
        "d_not_loaded": ("fail", "load"),
        "e_not_built": ("fail", "build"),
        "f_right": ("pass", ""),
    }
    assert not left
    # All that came to the judge after another one; what was not built never did, and its process was ended.
    assert [was_there for _, was_there in started] == [False, True, True, True, False]
    assert len({id(process) for process, _ in started}) == len(started)
