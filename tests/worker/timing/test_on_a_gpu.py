"""The clock on a real GPU, through the real processes: what each measurement says of candidates whose nature is known."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[3]
ELEMENTS = 2**20
# Four kernels of four megabytes each.
BODY = "return torch.relu(torch.exp(x) * 2.0 + 1.0)"
MODULE = """
import time
import torch
class {name}(torch.nn.Module):
    def forward(self, x):
        {before}
        {body}
"""
INPUTS = f"""
def get_inputs():
    return [torch.randn({ELEMENTS})]
def get_init_inputs():
    return []
"""
CANDIDATES = {
    "same": ("pass", BODY),
    "sleeps": ("time.sleep(0.001)", BODY),
    "waits": ("float(x[0])", BODY),
    "varies": ("self.odd = not getattr(self, 'odd', False)\n        if self.odd: torch.sin(x)", BODY),
    "twice": ("torch.relu(torch.exp(x) * 2.0 + 1.0)", BODY),
}
BASELINES = ["@compile", "@compile-max-autotune", "@cudagraph"]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of one task, timed with every baseline."""
    root = tmp_path_factory.mktemp("tree")
    (root / "references").mkdir()
    (root / "candidates" / "chain").mkdir(parents=True)
    (root / "references" / "chain.py").write_text(MODULE.format(name="Model", before="pass", body=BODY) + INPUTS)
    for name, (before, body) in CANDIDATES.items():
        (root / "candidates" / "chain" / f"{name}.py").write_text(MODULE.format(name="ModelNew", before=before, body=body))
    (root / "kbench.toml").write_text(f"[time]\nbaselines = {json.dumps(BASELINES)}\n")
    # A number of pairs: what one pair of processes says is all that is asked here.
    (root / "out.jsonl").write_text(timed(root, "--repeat", "16"))
    return root


def timed(root: Path, *arguments: str) -> str:
    """What `kbench time --json` prints of a tree."""
    command = [sys.executable, "-m", "kbench", "time", *arguments, "--root", str(root), "--device", "cuda", "--json", "--timeout", "120"]
    environment = {**os.environ, "KBENCH_CACHE_DIR": str(root / "cache"), "PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=400, check=False)
    # A candidate that is refused fails the tests that ask for it, and no other one.
    assert run.returncode in (0, 1), run.stdout[-3000:] + run.stderr[-3000:]
    return run.stdout


@pytest.fixture(scope="module")
def timings(tree: Path) -> dict[str, dict[str, Any]]:
    """The timing of each candidate by its name."""
    return timings_in((tree / "out.jsonl").read_text())


def timings_in(text: str) -> dict[str, dict[str, Any]]:
    objects = [json.loads(line) for line in text.splitlines()]
    return {found["candidate"]: found["timings"][0] if found["timings"] else found for found in objects}


@pytest.fixture(scope="module")
def rows(tree: Path) -> dict[str, dict[str, str]]:
    """The first stored row of each candidate and baseline by its name."""
    with (tree / "results" / "timings.csv").open() as file:
        return {row["candidate"]: row for row in reversed(list(csv.DictReader(file)))}


def test_every_measurement_has_a_figure_of_its_own(timings: dict[str, dict[str, Any]]) -> None:
    found = timings["same"]
    for name in ("hot", "graph", "wall", "enqueue", "busy", "span"):
        assert found[f"reference_{name}_s"] > 0, (name, found["notes"])
        assert found[f"candidate_{name}_s"] > 0, (name, found["notes"])
    assert found["floor_s"] > 0
    assert found["gpu_s"] > 0
    assert found["notes"] == []


def test_kernels_are_counted_and_named(timings: dict[str, dict[str, Any]]) -> None:
    assert 0 < timings["same"]["candidate_busy_s"] <= timings["same"]["candidate_span_s"]
    assert (timings["same"]["reference_kernels"], timings["same"]["candidate_kernels"]) == (4, 4)
    assert timings["twice"]["candidate_kernels"] == 8
    assert any("exp" in name for name, _ in timings["same"]["kernels"]["candidate"])
    assert {name for name, found in timings.items() if "kernels_vary" in found["flags"]} == {"varies"}
    assert not any("no_kernels" in found["flags"] for found in timings.values())


def test_a_sleep_before_the_launch_is_in_the_wall_time_alone_and_is_flagged(timings: dict[str, dict[str, Any]]) -> None:
    found = timings["sleeps"]

    assert found["candidate_s"] < 1e-3 < found["candidate_wall_s"]
    assert "slow_launch" in found["flags"]
    assert "slow_launch" not in timings["same"]["flags"]


def test_a_call_that_waits_is_host_bound_cannot_be_captured_and_is_measured_as_a_stream(timings: dict[str, dict[str, Any]]) -> None:
    found = timings["waits"]

    assert "host_bound" in found["flags"], found
    assert any("candidate's calls cannot be captured" in note for note in found["notes"])
    assert "candidate_graph_s" not in found
    assert found["reference_stream_s"] > 0
    assert found["candidate_stream_s"] > 0


def test_a_capture_that_failed_leaves_the_other_measurements_whole(timings: dict[str, dict[str, Any]]) -> None:
    assert timings["waits"]["candidate_kernels"] > 4
    assert timings["twice"]["candidate_graph_s"] > 0


def test_the_peak_of_memory_holds_at_least_the_output(timings: dict[str, dict[str, Any]]) -> None:
    assert timings["same"]["candidate_memory_bytes"] >= 4 * ELEMENTS


def test_clocks_and_users_are_in_the_record(timings: dict[str, dict[str, Any]]) -> None:
    pytest.importorskip("pynvml")
    found = timings["same"]

    assert 0.2e9 < found["sm_clock_hz"] < 4e9
    assert found["mem_clock_hz"] > 0
    assert found["temperature_c"] > 0
    assert found.get("gpu_users", 0) is not None


def test_energy_is_measured_where_it_is_asked_for(tree: Path, timings: dict[str, dict[str, Any]]) -> None:
    pytest.importorskip("pynvml")
    (tree / "kbench.toml").write_text("[time]\nbaselines = []\n")
    found = timings_in(timed(tree, "chain/same", "--energy", "--repeat", "10"))["same"]

    assert found["candidate_energy_j"] > 0, found["notes"]
    assert found["reference_energy_j"] > 0, found["notes"]
    assert "candidate_energy_j" not in timings["same"]


def test_work_is_counted_and_held_against_what_this_gpu_can_do(timings: dict[str, dict[str, Any]], tree: Path) -> None:
    found = timings["same"]

    assert (found["work"]["read_bytes"], found["work"]["written_bytes"], found["work"]["how"]) == (4 * ELEMENTS, 4 * ELEMENTS, "meta")
    assert 0 < found["sol_s"] < found["candidate_s"]
    (kept,) = (tree / "cache" / "ceilings").iterdir()
    ceilings = json.loads(kept.read_text())
    assert ceilings["bytes_s"] < ceilings["bus_bytes_s"]
    assert ceilings["flops"]["float32"] < ceilings["flops"]["tf32"] < ceilings["flops"]["bfloat16"]


def test_every_baseline_is_timed_in_the_same_run(rows: dict[str, dict[str, str]]) -> None:
    for name in BASELINES:
        assert rows[name]["status"] == "pass", rows[name]
        assert float(rows[name]["candidate_s"]) > 0
    assert len({row["run_id"] for row in rows.values()}) == 1
    assert set(rows) == {*BASELINES, *CANDIDATES}


def test_what_was_measured_is_in_the_row(rows: dict[str, dict[str, str]]) -> None:
    for name in ("candidate_hot_s", "candidate_graph_s", "candidate_kernels", "candidate_memory_bytes", "sol_s", "gpu_s", "wall_s", "sm_clock_hz"):
        assert float(rows["same"][name]) > 0, name
