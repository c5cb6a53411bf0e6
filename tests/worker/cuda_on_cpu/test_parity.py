"""The verdicts on the CPU against those of an H200, kernel by kernel; `scripts/cuda_on_cpu_against_device.py` tells what an H200 says.

`h200.json` holds what it said: the right kernels, which gave the expected results and left each of compute-sanitizer's
tools without an error, for each planted fault the errors of the tool that looks for its kind (null: none does, or none
can see it; a text: it had not ended when the tool was stopped), and the verdicts on candidates. What the CPU says of each kernel is held in `test_corpus`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbench import discovery
from kbench.config import Config
from kbench.engines.job import Job, Options
from kbench.engines.once import judge
from kbench.records import CUDA_ON_CPU, Status, Task
from tests.worker.cuda_on_cpu.corpus_table import KERNELS, PLANTED
from tests.worker.cuda_on_cpu.test_candidates import CANDIDATES

ROOT = Path(__file__).parents[3]
H200 = json.loads((Path(__file__).parent / "h200.json").read_text())
# Of the corpus of cheats and look-alikes: those whose kernels are CUDA C++.
CHEATS = sorted(path for path in (ROOT / "kbench/selftest/corpus").glob("*/*.py") if "cuda_sources" in path.read_text())


def test_a_device_has_a_verdict_on_every_kernel_and_no_other_one_than_the_cpu() -> None:
    assert H200["right"] == sorted(kernel.name for kernel in KERNELS)
    assert not any(H200["errors"].values())
    assert set(H200["planted"]) == {planted.name for planted in PLANTED}
    assert all(found != 0 for found in H200["planted"].values())
    assert set(H200["candidates"]) == {*CANDIDATES, *(f"{path.parent.name}/{path.stem}" for path in CHEATS)}
    assert all(H200["candidates"][name] == Status.PASS for name in CANDIDATES)


@pytest.mark.parametrize("candidate", CHEATS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_cheat_or_look_alike_has_the_verdict_that_a_device_gives(candidate: Path, tmp_path: Path) -> None:
    found = discovery.discover_pair(candidate.parent / "reference.py", candidate)
    task = Task(name="cheats", reference=found.tasks[0].reference, cases=found.tasks[0].cases)
    job = Job(task=task, candidate=found.candidates[0], device=CUDA_ON_CPU, settings=Config().settings_for("any", {}), cases=task.cases)

    (result,) = judge([job], Options(jobs=1, seed=3, cache=tmp_path))

    verdict = result.verdict
    assert verdict.status == H200["candidates"][f"{candidate.parent.name}/{candidate.stem}"], f"{verdict.reason} {verdict.detail}"
