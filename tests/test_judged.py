"""Every candidate under scenarios/ and faults/, judged through the real processes, against what it expects of itself."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbench import discovery
from kbench.config import Config
from kbench.engines.job import Job, Options, builds
from kbench.engines.once import judge
from kbench.records import Candidate, Status, Task, Verdict

HERE = Path(__file__).parent
# A candidate that never answers costs this much; the others get as long as a loaded machine may need.
SHORT_TIMEOUT_S = 3.0
TIMEOUT_S = 60.0


def expectation(path: Path) -> dict[str, Any] | None:
    """The literal EXPECT of a candidate file; None for a reference."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "EXPECT":
            return dict(ast.literal_eval(node.value))
    return None


def groups() -> list[Path]:
    """Every folder with a reference and candidates."""
    return sorted({path.parent for folder in ("scenarios", "faults") for path in (HERE / folder).rglob("reference.py")})


def candidates() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every candidate that states what it expects and runs on a CPU."""
    for group in groups():
        for path in sorted(group.glob("*.py")):
            expected = expectation(path)
            if expected is not None:
                yield path, expected


CASES = {str(path.relative_to(HERE).with_suffix("")): (path, expected) for path, expected in candidates()}


def is_cuda(name: str) -> bool:
    return Path(name).name.startswith("cuda_")


def judge_all(chosen: dict[str, tuple[Path, dict[str, Any]]], cache: Path) -> dict[str, Verdict]:
    """Judge the chosen candidates in one run of the engine."""
    jobs = []
    for name, (path, expected) in chosen.items():
        found = discovery.discover_pair(path.parent / "reference.py", path)
        task = Task(name=str(path.parent.relative_to(HERE)), reference=found.tasks[0].reference, cases=found.tasks[0].cases)
        candidate: Candidate = found.candidates[0]
        device = "cuda:0" if is_cuda(name) else "cpu"
        timeout_s = SHORT_TIMEOUT_S if "timeout" in expected.get("reason", ()) else TIMEOUT_S
        settings = Config(verify={"timeout_s": timeout_s}).settings_for("scenario", expected.get("settings", {}))
        jobs.append(Job(task=task, candidate=candidate, device=device, settings=settings, cases=task.cases))

    # A short time is for what a candidate does, not for its compiler.
    slow = [built_only(job) for job in jobs if builds(job) and job.settings.timeout_s == SHORT_TIMEOUT_S]
    results = judge(jobs, Options(jobs=2, seed=7, cache=cache, memory_bytes=3 * 2**30), before=slow)
    return {str(result.job.candidate.source): result.verdict for result in results}


def built_only(job: Job) -> Job:
    """The same candidate, built with patience and not judged."""
    return dataclasses.replace(job, skip="only built", settings=dataclasses.replace(job.settings, timeout_s=TIMEOUT_S))


@pytest.fixture(scope="session")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    """The verdicts of all CPU candidates."""
    chosen = {name: case for name, case in CASES.items() if not is_cuda(name)}
    return judge_all(chosen, tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def cuda_verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    """The verdicts of all CUDA candidates."""
    chosen = {name: case for name, case in CASES.items() if is_cuda(name)}
    return judge_all(chosen, tmp_path_factory.mktemp("cache"))


def check(verdict: Verdict, expected: dict[str, Any]) -> None:
    told = f"{verdict.status} {verdict.reason}: {verdict.detail}\n{verdict.output_tail}"
    assert verdict.status == expected["status"], told
    if expected["status"] != Status.PASS:
        assert verdict.reason in expected["reason"], told
    assert expected.get("detail", "") in verdict.detail, told
    assert expected.get("output", "") in verdict.output_tail, told
    assert any(expected.get("warning", "") in warning for warning in [*verdict.warnings, ""] if warning or not expected.get("warning")), told


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not is_cuda(name)])
def test_a_candidate_gets_the_verdict_that_it_deserves(name: str, verdicts: dict[str, Verdict]) -> None:
    path, expected = CASES[name]
    check(verdicts[str(path)], expected)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if is_cuda(name)])
def test_a_cuda_candidate_gets_the_verdict_that_it_deserves(name: str, cuda_verdicts: dict[str, Verdict]) -> None:
    path, expected = CASES[name]
    check(cuda_verdicts[str(path)], expected)
