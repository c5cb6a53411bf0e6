"""Candidates that break one contract each, and an honest one, through the real processes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from kbench import discovery
from kbench.config import CONTRACTS, Config
from kbench.engines.job import Job, Options
from kbench.engines.once import judge
from kbench.records import Status, Task, Verdict

HERE = Path(__file__).parent / "candidates"
CANDIDATES = {path.stem: path for path in sorted(HERE.glob("*.py")) if path.stem not in ("reference", "cuda_reference")}
ON_CPU = [name for name in CANDIDATES if not name.startswith("cuda_")]
ON_CUDA = [name for name in CANDIDATES if name not in ON_CPU]
NOISY = """
import torch

DEVICES = ("cuda",)

class {name}(torch.nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x), torch.dropout(x, 0.5, True)

def get_inputs():
    return [torch.randn(64, 16)]

def get_init_inputs():
    return []
"""
# No stream and no graph without a GPU; every other contract can be asked of this task.
ASKED = set(CONTRACTS) - {"stream", "graph"}


def literal(path: Path, name: str) -> tuple[str, ...]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            return tuple(ast.literal_eval(node.value))
    raise AssertionError(f"{path} has no {name}")


def judged(
    candidates: list[Path], cache: Path, device: str = "cpu", asked: tuple[str, ...] = (), *, reference: Path = HERE / "reference.py", **how: bool
) -> dict[str, Verdict]:
    jobs = []
    for path in candidates:
        found = discovery.discover_pair(reference, path)
        task = Task(name="contract", reference=found.tasks[0].reference, cases=found.tasks[0].cases)
        settings = Config(verify={"contract": asked, "trials": 2, "domain": "as_given"}).settings_for("any", {})
        jobs.append(Job(task=task, candidate=found.candidates[0], device=device, settings=settings, cases=task.cases))

    results = judge(jobs, Options(jobs=2, seed=3, cache=cache, memory_bytes=3 * 2**30, **how))
    return {result.job.candidate.name: result.verdict for result in results}


def statuses(verdict: Verdict) -> dict[str, Status]:
    return {check.name.partition(":")[2]: check.status for check in verdict.checks if check.name.startswith("contract:")}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    return judged([CANDIDATES[name] for name in ON_CPU], tmp_path_factory.mktemp("cache"), contract=True)


@pytest.mark.parametrize("name", ON_CPU)
def test_a_broken_contract_is_reported_and_no_other(name: str, verdicts: dict[str, Verdict]) -> None:
    verdict, broken = verdicts[name], literal(CANDIDATES[name], "BROKEN")
    found = statuses(verdict)
    told = f"{verdict.status} {verdict.reason} {verdict.detail} {verdict.warnings}"
    assert {contract for contract, status in found.items() if status is Status.FAIL} == set(broken), told
    assert {contract for contract, status in found.items() if status is not Status.SKIP} == ASKED, told
    assert verdict.status is Status.PASS, told
    assert [warning.partition(": ")[0] for warning in verdict.warnings] == [f"contract:{contract}" for contract in broken]


def test_what_ended_the_process_is_named_and_the_rest_is_asked_of_another(verdicts: dict[str, Verdict]) -> None:
    (warning,) = verdicts["dies_of_misalignment"].warnings
    assert "SIGABRT" in warning


def test_strict_fails_what_is_broken(tmp_path: Path) -> None:
    found = judged([CANDIDATES["honest"], CANDIDATES["first_shape"]], tmp_path, strict=True)
    assert found["honest"].status is Status.PASS
    assert (found["first_shape"].status, found["first_shape"].reason) == (Status.FAIL, "contract:shapes")
    assert "after a call with other shapes, on those of case odd: values: output[1]" in found["first_shape"].detail


def test_a_task_asks_for_what_it_needs_and_for_no_more(tmp_path: Path) -> None:
    found = judged([CANDIDATES["one_thread"], CANDIDATES["other_bits"]], tmp_path, asked=("thread",))
    assert found["one_thread"].reason == "contract:thread"
    assert found["other_bits"].status is Status.PASS
    assert set(statuses(found["other_bits"])) == {"thread"}


@pytest.mark.gpu
@pytest.mark.parametrize("name", ON_CUDA)
def test_a_broken_contract_is_reported_on_a_gpu(name: str, tmp_path: Path) -> None:
    (verdict,) = judged([CANDIDATES[name]], tmp_path, device="cuda:0", contract=True).values()
    found = statuses(verdict)
    told = f"{verdict.status} {verdict.reason} {verdict.detail} {verdict.warnings}"
    assert {contract for contract, status in found.items() if status is Status.FAIL} == set(literal(CANDIDATES[name], "BROKEN")), told
    assert verdict.status is Status.PASS, told


@pytest.mark.gpu
def test_draws_of_a_replayed_graph_are_those_of_a_call(tmp_path: Path) -> None:
    reference, candidate = tmp_path / "reference.py", tmp_path / "noisy.py"
    reference.write_text(NOISY.format(name="Model"))
    candidate.write_text(NOISY.format(name="ModelNew"))
    (verdict,) = judged([candidate], tmp_path, "cuda:0", ("stream", "graph"), reference=reference).values()

    assert verdict.status is Status.PASS, f"{verdict.reason} {verdict.detail}"
    assert statuses(verdict) == {"stream": Status.PASS, "graph": Status.PASS}
