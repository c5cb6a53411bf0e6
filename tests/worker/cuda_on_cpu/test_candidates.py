"""This project's own CUDA candidates, without a GPU: the documents' kernels and those that draw from torch's Philox."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CANDIDATES = ["cvae/document", "cvae/fused", "mixture_reparam/document", "mixture_reparam/single_launch"]


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    """Every case that is marked for a CPU, twice each: once in the natural order of threads, once in another."""
    folder = tmp_path_factory.mktemp("tree")
    for name in ("references", "candidates", "kbench.toml"):
        (folder / name).symlink_to(ROOT / name)
    run = subprocess.run(
        [sys.executable, "-m", "kbench", "verify", *CANDIDATES, "--json", "--device", "cpu", "--trials", "2", "--timeout", "3600"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "KBENCH_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=7200,
        check=False,
    )
    found = [json.loads(line) for line in run.stdout.splitlines()]
    return {f"{verdict['task']}/{verdict['candidate']}": verdict for verdict in found}


@pytest.mark.parametrize("candidate", CANDIDATES)
def test_candidate_passes_every_case_on_the_cpu(candidate: str, verdicts: dict[str, dict[str, object]]) -> None:
    found = verdicts[candidate]

    assert (found["status"], found["reason"], found["detail"]) == ("pass", "", "")
    assert found["device"] == "cuda-on-cpu"
