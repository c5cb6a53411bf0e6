"""What the doctor finds: the state of each thing, and the exact step that mends what is not in order."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kbench import doctor
from kbench.doctor import Finding

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KBENCH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("KBENCH_CACHE_GB", "2")
    return tmp_path / "cache/builds"


def toolkit(folder: Path, *, headers: bool = True) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/nvcc").write_text("#!/bin/sh\n")
    (folder / "bin/nvcc").chmod(0o755)
    if headers:
        (folder / "include").mkdir()
        (folder / "include/cuda_runtime.h").touch()
    return folder


def test_a_machine_in_order_needs_no_mending_and_says_so_in_json(tmp_path: Path) -> None:
    """The real one that the tests run on: what it cannot do is limited, not missing."""
    (tmp_path / "kbench.toml").touch()
    run = subprocess.run(
        [sys.executable, "-m", "kbench", "doctor", "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
    found = {finding["name"]: finding for finding in json.loads(run.stdout)["findings"]}
    assert {"python", "torch", "gpu", "c++", "nvcc", "sandbox", "cache", "results"} <= set(found)
    assert {name: found[name]["state"] for name in ("python", "torch", "c++", "results")} == dict.fromkeys(("python", "torch", "c++", "results"), "ok")
    assert found["results"]["detail"] == str(tmp_path / "results")


def test_what_is_missing_is_named_with_its_step_and_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    find = importlib.util.find_spec

    def find_without_torch(name: str) -> importlib.machinery.ModuleSpec | None:
        return None if name == "torch" else find(name)

    monkeypatch.setattr(importlib.util, "find_spec", find_without_torch)

    assert doctor.main(tmp_path, as_json=False) == 4
    lines = capsys.readouterr().out.splitlines()
    line = next(number for number, text in enumerate(lines) if text.startswith("missing  torch"))
    assert lines[line + 1].strip() == "→ pip install torch"


def test_a_torch_that_cannot_be_imported_is_told_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess([], 1, stdout="", stderr="Traceback\nImportError: libcudart.so.13: cannot open shared object file\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)

    facts, finding = doctor._ask_torch()

    assert facts == {}
    assert finding.state == "missing"
    assert "libcudart.so.13" in finding.detail
    assert finding.mend


def test_a_torch_that_never_answers_is_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, timeout: float, **__: object) -> None:
        raise subprocess.TimeoutExpired("python", timeout)

    monkeypatch.setattr(subprocess, "run", never)

    assert doctor._ask_torch()[1].state == "missing"


def test_a_cuda_home_that_lacks_headers_is_told_with_one_that_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = toolkit(tmp_path / "bad", headers=False), toolkit(tmp_path / "good")
    monkeypatch.setenv("CUDA_HOME", str(bad))
    monkeypatch.setenv("CUDA_PATH", str(good))

    finding = doctor._cuda_home(needed=True)

    assert finding.state == "limited"
    assert "lacks include/cuda_runtime.h" in finding.detail
    assert finding.mend == f"export CUDA_HOME={good}"


def test_a_link_to_nvcc_leads_to_the_toolkit_and_torch_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch takes the folder of the link for the toolkit."""
    right = toolkit(tmp_path / "cuda")
    (tmp_path / "local/bin").mkdir(parents=True)
    (tmp_path / "local/bin/nvcc").symlink_to(right / "bin/nvcc")
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "local/bin"))

    finding = doctor._cuda_home(needed=True)

    assert finding.detail == str(right / "bin/nvcc")
    assert f"export CUDA_HOME={right}" in finding.mend


def test_without_a_compiler_the_step_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _: None)

    found = {finding.name: finding for finding in doctor._compilers({})}

    assert (found["c++"].state, found["c++"].mend) == ("missing", "apt-get install g++")


@pytest.mark.parametrize(
    ("facts", "state"),
    [({"landlock": [7, ""]}, "ok"), ({"landlock": [1, ""]}, "limited"), ({"landlock": [0, "off"]}, "limited"), ({}, "limited")],
)
def test_a_kernel_without_a_sandbox_is_told(facts: dict[str, object], state: str) -> None:
    finding = doctor._sandbox(facts)

    assert finding.state == state
    assert (finding.mend == "") == (state == "ok")


@pytest.mark.parametrize(
    ("facts", "state", "words"),
    [
        ({"cuda": "13.0", "gpus": ["NVIDIA H200"]}, "ok", "NVIDIA H200"),
        ({"cuda": "13.0", "gpus": []}, "limited", "torch finds none"),
        ({"cuda": None, "gpus": []}, "limited", "CPU build"),
    ],
)
def test_a_gpu_is_named_or_it_is_said_what_happens_without(facts: dict[str, object], state: str, words: str) -> None:
    finding = doctor._gpu(facts)

    assert finding.state == state
    assert words in finding.detail


@pytest.mark.parametrize("facts", [{"cuda": "13.0", "gpus": []}, {"cuda": None, "gpus": []}])
def test_without_a_gpu_it_is_said_where_cuda_candidates_run(facts: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "CUDA C++ candidates are verified on the CPU, and never timed" in doctor._gpu(facts).detail

    monkeypatch.setattr(doctor.discovery, "has_cuda_parser", lambda: False)
    assert "CUDA C++ candidates are skipped" in doctor._gpu(facts).detail


@pytest.mark.parametrize("find", [doctor._cache, lambda: doctor._results(Path("/nowhere/else"))])
def test_what_cannot_be_written_is_missing(monkeypatch: pytest.MonkeyPatch, find: object) -> None:
    """Made up, because these tests may run as root, who may write everywhere."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert callable(find)

    finding: Finding = find()

    assert (finding.state, bool(finding.mend)) == ("missing", True)


def test_outside_of_a_project_there_are_no_results_and_that_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    finding = doctor._results(None)

    assert (finding.state, bool(finding.mend)) == ("limited", True)


def test_the_cache_is_shown_with_its_size_and_its_bound(cache: Path) -> None:
    for key in ("one", "two"):
        (cache / key).mkdir(parents=True)
        (cache / key / "entry.json").write_text("{}")
    (cache / "one" / "one.so").write_bytes(b"x" * 3_000_000)
    (cache / "work" / "three").mkdir(parents=True)

    assert doctor.describe_cache() == f"{cache}: 2 builds, 3 MB of at most 2 GB"


def test_emptying_it_leaves_builds_under_way_alone(cache: Path) -> None:
    (cache / "one").mkdir(parents=True)
    (cache / "one" / "entry.json").write_text("{}")
    (cache / "work" / "two" / "build.x").mkdir(parents=True)
    (cache / "locks").mkdir()

    assert doctor.clear_cache().startswith(f"emptied {cache}: 1 builds")
    assert sorted(path.name for path in cache.iterdir()) == ["locks", "work"]
    assert (cache / "work" / "two" / "build.x").is_dir()


def test_a_cache_that_nothing_was_built_in_is_empty(cache: Path) -> None:
    assert doctor.describe_cache().startswith(f"{cache}: 0 builds")
    assert doctor.clear_cache().startswith("emptied")
    assert not cache.exists()
