"""A run that was interrupted goes on where it was; on any doubt a candidate is judged again."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbench.identity import identity
from kbench.records import Candidate, Environment, Task
from kbench.store import Store

REFERENCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2 + 1

def get_inputs():
    return [torch.randn(8, 8)]

def get_init_inputs():
    return []
"""
GOOD = REFERENCE.split("def get_inputs")[0].replace("Model(", "ModelNew(")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    files = {
        "references/t.py": REFERENCE,
        "candidates/t/good.py": GOOD,
        "candidates/t/wrong.py": GOOD.replace("+ 1", "+ 1.01"),
        "candidates/t/gpu_only.py": "DEVICES = ('cuda',)\n" + GOOD,
        "kbench.toml": "[time]\nbaselines = []\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def kbench(*arguments: str, tree: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kbench", *arguments, "--json", "--device", "cpu"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "KBENCH_CACHE_DIR": str(tree / "cache"), "TERM": str(len(arguments))},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def judged(run: subprocess.CompletedProcess[str]) -> set[str]:
    return {json.loads(line)["candidate"] for line in run.stdout.splitlines()}


def test_only_what_has_no_verdict_or_another_content_is_judged_again(tree: Path) -> None:
    assert judged(kbench("verify", "t/good", tree=tree)) == {"good"}
    second = kbench("verify", "--resume", tree=tree)
    # A skip is no verdict: there may be a GPU now.
    third = kbench("verify", "--resume", tree=tree)
    (tree / "candidates/t/good.py").write_text(GOOD + "# another\n")
    fourth = kbench("verify", "--resume", tree=tree)
    other_settings = kbench("verify", "--resume", "--trials", "3", tree=tree)

    assert judged(second) == {"wrong", "gpu_only"}
    assert judged(third) == {"gpu_only"}
    assert judged(fourth) == {"good", "gpu_only"}
    assert judged(other_settings) == {"good", "wrong", "gpu_only"}
    # What was known counts for the exit code.
    assert [run.returncode for run in (second, third, fourth)] == [1, 1, 1]
    assert "2 of 3 candidates have a verdict already" in third.stderr
    with (tree / "results/verdicts.csv").open() as file:
        rows = [(row["candidate"], row["status"]) for row in csv.DictReader(file)]
    assert rows.count(("wrong", "fail")) == 2


def test_a_time_is_no_verify_and_its_rows_are_whole_before_its_verdict_is_there(tree: Path) -> None:
    kbench("verify", "t/good", tree=tree)
    first = kbench("time", "t/good", "--repeat", "4", "--resume", tree=tree)
    second = kbench("time", "t/good", "--repeat", "4", "--resume", tree=tree)
    third = kbench("time", "t/good", "--repeat", "5", "--resume", tree=tree)

    assert [judged(run) for run in (first, second, third)] == [{"good"}, set(), {"good"}]
    assert second.returncode == 0


# What a verdict depends on.


@pytest.fixture
def subject(tmp_path: Path) -> dict[str, Any]:
    reference, source = tmp_path / "t.py", tmp_path / "c.py"
    for path in (reference, source):
        path.touch()
    return {
        "task": Task(name="t", reference=reference, sha256="1"),
        "candidate": Candidate(task="t", name="c", source=source, sha256="2"),
        "asked": {"settings": "3"},
        "environment": Environment(torch="2.13", gpu="NVIDIA H200"),
    }


def _replaced(name: str, **fields: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda subject: {**subject, name: dataclasses.replace(subject[name], **fields)}


@pytest.mark.parametrize(
    "change",
    [
        _replaced("task", sha256="other"),
        _replaced("candidate", sha256="other"),
        _replaced("environment", torch="2.14"),
        _replaced("environment", gpu="NVIDIA T4"),
        _replaced("environment", kbench_version="9"),
        lambda subject: {**subject, "asked": {"settings": "other"}},
    ],
)
def test_whatever_a_verdict_depends_on_changes_its_name(subject: dict[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    assert identity(**change(subject)) not in ("", identity(**subject))


def test_a_folder_of_the_candidates_own_a_variable_and_a_compiler_count_too(
    subject: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [identity(**subject)]
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "kernel.cu").write_text("one")
    names.append(identity(**subject))
    (tmp_path / "c" / "kernel.cu").write_text("two")
    names.append(identity(**subject))
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    names.append(identity(**subject))
    compiler = tmp_path / "my-compiler"
    compiler.touch(mode=0o755)
    monkeypatch.setenv("CXX", str(compiler))
    names.append(identity(**subject))
    monkeypatch.setenv("TERM", "dumb")

    assert len(set(names)) == 5
    assert identity(**subject) == names[-1]
    assert identity(**{**subject, "candidate": dataclasses.replace(subject["candidate"], sha256="")}) == ""


def test_rows_of_an_older_version_and_broken_lines_name_no_verdict(tmp_path: Path) -> None:
    store = Store(tmp_path)
    (tmp_path / "verdicts.csv").write_text("run_id,started_at,task,candidate,status\n1,now,t,c,pass\n")
    assert store.judged() == {}
    assert Store(tmp_path / "nowhere").judged() == {}
