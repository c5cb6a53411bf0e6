"""The processes around compute-sanitizer, with a stand-in for the tool on the CPU; the tool itself on a GPU."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kbench import discovery
from kbench.config import Config
from kbench.engines import sanitize
from kbench.engines.job import Job, Options
from kbench.engines.once import judge
from kbench.records import Case, CheckResult, Status, Task, Verdict
from kbench.sandbox import Scratch, Zygote
from kbench.worker import handover
from kbench.worker.evidence import Tolerance
from kbench.worker.reference import CaseReference, Reference

HERE = Path(__file__).parent
CVAE = HERE.parents[1] / "references/cvae.py"
STAND_IN = """#!{python}
import pathlib, subprocess, sys
which, report = sys.argv[sys.argv.index("--tool") + 1], pathlib.Path(sys.argv[sys.argv.index("--save") + 1])
target = sys.argv[sys.argv.index({python!r}):]
code = 0
if which != "synccheck":
    code = subprocess.run(target).returncode
name = {{"racecheck": "unmended.racecheck.xml", "synccheck": ""}}.get(which, "clean.memcheck.xml")
if name:
    report.write_bytes((pathlib.Path({records!r}) / name).read_bytes())
sys.exit(code)
"""
CANDIDATE = """
import torch
from torch import nn
try:
    open({secret!r}).read()
    print("read what it may not")
except OSError:
    pass

class ModelNew(nn.Module):
    def forward(self, x):
        {body}
        return 2 * x, x.sum(dim=0)
"""


def run(tmp_path: Path, body: str = "pass") -> dict[str, CheckResult]:
    """All four tools, by the stand-in, around a candidate on the CPU."""
    secret = tmp_path / "secret.py"
    secret.write_text("the reference")
    candidate = tmp_path / "candidate.py"
    candidate.write_text(CANDIDATE.format(secret=str(secret), body=body))
    tool = tmp_path / "tool"
    tool.write_text(STAND_IN.format(python=sys.executable, records=str(HERE / "records")))
    tool.chmod(0o755)
    reference = Reference(HERE / "candidates/reference.py", torch.device("cpu"), root_seed=3, label="t")
    case = CaseReference(reference, Case(), trials=2, tolerance=Tolerance(by_dtype={}, default=(1e-4, 1e-4)))

    async def go() -> list[CheckResult]:
        inputs, zygote = Scratch().make(), Zygote()
        try:
            await zygote.start()
            plan = sanitize.Plan(
                tool=str(tool),
                request={
                    "path": str(candidate),
                    "module": "m",
                    "model": "ModelNew",
                    "device": "cpu",
                    "builds": {},
                    "cases": handover.write_calls([case], inputs.path),
                },
                policy={"readable": [str(candidate)], "hidden": [str(tmp_path)], "gpu": False},
                gpu="",
                limits={"memory_bytes": 4 * 2**30, "max_processes": 64},
                timeout_s=120.0,
            )
            return await sanitize.sanitize(zygote, plan, inputs)
        finally:
            await zygote.close()
            inputs.remove()

    return {result.name: result for result in asyncio.run(go())}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, CheckResult]]:
    yield run(tmp_path_factory.mktemp("sanitize"))


def test_a_tool_that_found_nothing_passes_once_every_call_was_made(results: dict[str, CheckResult]) -> None:
    assert (results["sanitize:memcheck"].status, results["sanitize:memcheck"].detail) == (Status.PASS, "")
    assert results["sanitize:initcheck"].status is Status.PASS


def test_a_finding_fails_with_its_place(results: dict[str, CheckResult]) -> None:
    found = results["sanitize:racecheck"]
    assert found.status is Status.FAIL
    assert "decoder_loss_kernel at cuda.cu:80 against cuda.cu:87" in found.detail


def test_a_tool_that_did_not_run_to_its_end_is_an_error(results: dict[str, CheckResult]) -> None:
    assert results["sanitize:synccheck"].status is Status.ERROR
    assert "did not come to its end under it: exit code 0" in results["sanitize:synccheck"].detail


def test_the_candidate_is_confined_under_the_tool(tmp_path: Path) -> None:
    body = 'raise RuntimeError("here it ends")'
    found = run(tmp_path, body)["sanitize:memcheck"]
    assert found.status is Status.ERROR
    assert "here it ends" in found.detail
    assert "read what it may not" not in found.detail


def test_findings_fail_an_accepted_candidate_and_explain_a_wrong_one() -> None:
    verdict = Verdict(task="t", candidate="c", device="cuda:0", status=Status.PASS)
    found = CheckResult(name="sanitize:racecheck", status=Status.FAIL, detail="a race")
    unsure = CheckResult(name="sanitize:memcheck", status=Status.ERROR, detail="no end")
    failed = sanitize.with_tools(verdict, [unsure, found])
    assert (failed.status, failed.reason, failed.detail) == (Status.FAIL, "contract:racecheck", "sanitize:racecheck: a race")
    assert sanitize.with_tools(verdict, [unsure]).status is Status.ERROR
    wrong = sanitize.with_tools(Verdict(task="t", candidate="c", device="cuda:0", status=Status.FAIL, reason="values"), [found])
    assert (wrong.reason, wrong.warnings) == ("values", ("sanitize:racecheck: a race",))


def test_where_the_tool_is_absent_the_skip_says_what_to_do() -> None:
    verdict = Verdict(task="t", candidate="c", device="cpu", status=Status.PASS)
    skipped = sanitize.with_tools(verdict, sanitize.skipped("compute-sanitizer not found; it is in the CUDA toolkit"))
    assert skipped.status is Status.PASS
    assert skipped.warnings == ("sanitize: skip: compute-sanitizer not found; it is in the CUDA toolkit",)
    assert [check.status for check in skipped.checks] == [Status.SKIP] * 4


def sanitized(reference: Path, candidate: Path, cache: Path, **case: Any) -> Verdict:
    """The verdict on one candidate with `--sanitize`, on the first GPU."""
    found = discovery.discover_pair(reference, candidate)
    task = Task(name=reference.stem, reference=found.tasks[0].reference, cases=(Case(**case),))
    settings = Config().settings_for("any", {})
    job = Job(task=task, candidate=found.candidates[0], device="cuda:0", settings=settings, cases=task.cases)
    (result,) = judge([job], Options(jobs=1, seed=5, cache=cache, sanitize=True))
    return result.verdict


@pytest.mark.gpu
def test_the_documents_decoder_without_its_barrier_is_found(tmp_path: Path) -> None:
    verdict = sanitized(CVAE, HERE / "candidates/unmended_decoder.py", tmp_path, inputs={"batch_size": 16})
    assert (verdict.status, verdict.reason) == (Status.FAIL, "contract:racecheck"), json.dumps(verdict.detail)
    assert "decoder_loss_kernel at" in verdict.detail


@pytest.mark.gpu
def test_each_fault_is_found_by_its_tool(tmp_path: Path) -> None:
    verdict = sanitized(HERE / "candidates/reference.py", HERE / "candidates/faulty.py", tmp_path)
    found = {check.name: check.detail for check in verdict.checks if check.name.startswith("sanitize:")}
    assert "twice_unguarded" in found["sanitize:memcheck"]
    assert "no_barrier" in found["sanitize:racecheck"]
    assert "add_to_uninitialised" in found["sanitize:initcheck"]
    assert "barrier_of_others" in found["sanitize:synccheck"]


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["document", "fused"])
def test_a_shipped_candidate_is_clean(name: str, tmp_path: Path) -> None:
    verdict = sanitized(CVAE, HERE.parents[1] / f"candidates/cvae/{name}.py", tmp_path, inputs={"batch_size": 16})
    assert verdict.status is Status.PASS, f"{verdict.detail} {verdict.warnings}"
    assert [check.status for check in verdict.checks if check.name.startswith("sanitize:")] == [Status.PASS] * 4
