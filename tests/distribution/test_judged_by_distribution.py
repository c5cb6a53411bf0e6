"""Candidates that draw by other means, judged through the real processes under `draws = "distribution"`."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from kbench import discovery
from kbench.config import Config
from kbench.engines.job import Job, Options
from kbench.engines.once import judge
from kbench.records import Status, Task, Verdict

HERE = Path(__file__).parent
CANDIDATES = {str(path.relative_to(HERE).with_suffix("")): path for path in sorted(HERE.glob("*/*.py")) if path.name != "reference.py"}


def expectation(path: Path) -> dict[str, Any]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "EXPECT":
            return dict(ast.literal_eval(node.value))
    raise AssertionError(f"{path} expects nothing")


def judged(paths: list[Path], cache: Path, draws: str) -> dict[Path, Verdict]:
    jobs = []
    for path in paths:
        found = discovery.discover_pair(path.parent / "reference.py", path)
        task = Task(name=path.parent.name, reference=found.tasks[0].reference, cases=found.tasks[0].cases)
        settings = Config(verify={"draws": draws, "trials": 2}).settings_for("any", {})
        jobs.append(Job(task=task, candidate=found.candidates[0], device="cpu", settings=settings, cases=task.cases))

    results = judge(jobs, Options(jobs=2, seed=11, cache=cache, memory_bytes=3 * 2**30))
    return {result.job.candidate.source: result.verdict for result in results}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Verdict]:
    return judged(list(CANDIDATES.values()), tmp_path_factory.mktemp("cache"), "distribution")


@pytest.mark.parametrize("name", CANDIDATES)
def test_candidate_is_judged_by_what_it_draws(name: str, verdicts: dict[Path, Verdict]) -> None:
    path = CANDIDATES[name]
    expected, verdict = expectation(path), verdicts[path.resolve()]
    told = f"{verdict.status} {verdict.reason}: {verdict.detail}\n{verdict.output_tail}"
    assert verdict.status == expected["status"], told
    if verdict.status is not Status.PASS:
        assert verdict.reason in expected["reason"], told
        assert expected.get("detail", "") in verdict.detail, told


def test_what_was_asked_is_in_the_record(verdicts: dict[Path, Verdict]) -> None:
    (case,) = verdicts[CANDIDATES["noise/own_generator"].resolve()].cases
    (found,) = [check for check in case.checks if check.name == "draws"]
    assert re.match(r"the reference's distribution: \d+ calls a side, \d+ questions, p = ", found.detail)


def test_default_is_the_same_draws(tmp_path: Path) -> None:
    path = CANDIDATES["noise/own_generator"]
    (verdict,) = judged([path], tmp_path, "same").values()
    assert (verdict.status, verdict.reason) == (Status.FAIL, "values")
