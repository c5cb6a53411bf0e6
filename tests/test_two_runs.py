"""Two kbench at once, as real processes: they never time at the same time, and their rows do not mix."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from kbench.engines.gate import Lease
from kbench.store import Store

ROOT = Path(__file__).parents[1]
# Far above what any of this takes; only a hang gets there.
DEADLINE_S = 300

REFERENCE = """
import os, time
import torch

def note(what):
    with open(os.environ["CALLS"], "a") as file:
        file.write(f"{what} {os.getpid()} {time.monotonic_ns()}\\n")

class Model(torch.nn.Module):
    def forward(self, x):
        note("forward")
        return x * 2 + 1

def get_inputs():
    note("inputs")
    return [torch.randn(64, 64)]

def get_init_inputs():
    return []
"""
GOOD = "import torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x * 2 + 1\n"


def make(root: Path, n_candidates: int) -> None:
    files = {"references/t.py": REFERENCE, "kbench.toml": "[time]\nbaselines = []\n"}
    files |= {f"candidates/t/c{number}.py": GOOD for number in range(n_candidates)}
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def begin(root: Path, name: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "KBENCH_CACHE_DIR": str(root / "cache"),
        "KBENCH_LEASE_DIR": str(root / "leases"),
        "CALLS": str(root / name),
    }
    command = [sys.executable, "-m", "kbench", *arguments, "--device", "cpu"]
    return subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def calls(path: Path) -> list[tuple[str, int, int]]:
    return [(what, int(pid), int(at_ns)) for what, pid, at_ns in (line.split() for line in path.read_text().splitlines())]


def spans(found: list[tuple[str, int, int]]) -> list[tuple[int, int]]:
    """When the process that runs the reference for the clock was at work: the one that makes no inputs."""
    makers = {pid for what, pid, _ in found if what == "inputs"}
    timed: dict[int, list[int]] = {}
    for what, pid, at_ns in found:
        if what == "forward" and pid not in makers:
            timed.setdefault(pid, []).append(at_ns)
    return [(min(times), max(times)) for times in timed.values()]


def test_two_runs_never_time_at_the_same_time(tmp_path: Path) -> None:
    """Nothing at all of one run, no verification either, happens while the other one times."""
    make(tmp_path, 2)
    runs = {name: begin(tmp_path, name, "time", f"t/{name}", "--repeat", "40") for name in ("c0", "c1")}
    begun_ns = time.monotonic_ns()
    for run in runs.values():
        _, said = run.communicate(timeout=DEADLINE_S)
        assert run.returncode == 0, said

    found = {name: calls(tmp_path / name) for name in runs}
    times = {name: [at_ns for _, _, at_ns in made] for name, made in found.items()}
    for mine, theirs in (("c0", "c1"), ("c1", "c0")):
        ((start_ns, end_ns),) = spans(found[mine])
        assert begun_ns < start_ns
        assert not [at_ns for at_ns in times[theirs] if start_ns <= at_ns <= end_ns], f"{theirs} was at work while {mine} was timed"


def test_a_run_says_for_whom_it_waits(tmp_path: Path) -> None:
    """Here for one that waits to time, and has the turn."""
    make(tmp_path, 1)
    Lease("cpu", tmp_path / "leases")
    with (tmp_path / "leases/cpu.turn").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        run = begin(tmp_path, "c0", "verify", "--json")
        assert run.stderr is not None
        said = next(line for line in run.stderr if line.startswith("waiting"))
    told, _ = run.communicate(timeout=DEADLINE_S)

    assert said.startswith(f"waiting for another kbench (process {os.getpid()}: ")
    assert said.endswith(" to finish timing on this CPU\n")
    assert [json.loads(line)["status"] for line in told.splitlines()] == ["pass"]


def test_two_runs_into_one_file_mix_nothing_up_even_if_one_is_killed(tmp_path: Path) -> None:
    make(tmp_path, 6)
    runs = {name: begin(tmp_path, name, "verify", "--json") for name in ("one", "other", "killed")}
    victim = runs["killed"]
    assert victim.stdout is not None
    # It has stored a row at least, and is at work on the next.
    assert '"status": "pass"' in victim.stdout.readline()
    victim.send_signal(signal.SIGKILL)
    told = {name: len(run.communicate(timeout=DEADLINE_S)[0].splitlines()) for name, run in runs.items()}

    rows, problems = Store(tmp_path / "results").read_verdicts()

    assert problems == []
    assert (told["one"], told["other"]) == (6, 6)
    per_run = Counter(row.run_id for row in rows)
    assert sorted(per_run.values())[1:] == [6, 6]
    assert len(per_run) == 3
    assert {(row.run_id, row.candidate) for row in rows if row.status == "pass"} == {(row.run_id, row.candidate) for row in rows}
    assert len(rows) == len({(row.run_id, row.candidate) for row in rows})
