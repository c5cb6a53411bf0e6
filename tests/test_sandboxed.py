"""From inside a sandboxed candidate, run by kbench itself: nothing of others is reached, and honest ones work."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kbench.worker import landlock

HERE = Path(__file__).parent
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
KEY = "a" * 64
FILES = {
    "project/kbench.toml": "",
    "project/references/t.py": REFERENCE,
    "project/candidates/t/other.py": "# not yours",
    "home/secret": "not yours",
    "home/secret.h": '"not yours"',
    f"cache/builds/{KEY}/kernel.so": "not yours",
    f"cache/builds/{KEY}/entry.json": "{}",
    f"cache/builds/locks/{KEY}": "",
}


@contextmanager
def daemons(folder: Path) -> Iterator[None]:
    """Two that listen, one in a folder and one without."""
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as other:
        one.bind(str(folder / "daemon"))
        other.bind(f"\0{folder / 'daemon'}")
        one.listen()
        other.listen()
        yield


def make(root: Path, *names: str, device: str) -> Path:
    """A project with these candidates, a home and a build cache."""
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in names:
        text = (HERE / f"sandboxed/{name}.py").read_text()
        text = text.replace("LAND = {}", f"LAND = {{'root': {str(root)!r}}}").replace('DEVICES = ("cpu",)', f"DEVICES = ({device!r},)")
        (root / f"project/candidates/t/{name}.py").write_text(text)
    results = root / "project/results"
    results.mkdir()
    return results


def kbench(root: Path, *arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(HERE.parent),
        "HOME": str(root / "home"),
        "KBENCH_CACHE_DIR": str(root / "cache"),
    }
    return subprocess.run(
        [*prefix, sys.executable, "-m", "kbench", *arguments],
        cwd=root / "project",
        env=environment,
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )


def judged(run: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    found = {verdict["candidate"]: verdict for verdict in map(json.loads, run.stdout.splitlines())}
    assert found, run.stderr
    return found


def content(root: Path, *, but: str = "verdicts.csv") -> dict[str, str]:
    """Every file of the land by its content and mode; what kbench itself writes is left out."""
    return {
        str(path): f"{path.stat().st_mode:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for folder in ("project", "home", f"cache/builds/{KEY}")
        for path in sorted((root / folder).rglob("*"))
        if path.is_file() and path.name not in (but, ".lock")
    }


def attempts(verdict: dict[str, Any]) -> tuple[list[str], int]:
    lines = verdict["output_tail"].splitlines()
    tried = next((int(line.split()[1]) for line in lines if line.startswith("TRIED")), 0)
    return [line for line in lines if line.startswith("REACHED")], tried


def needs_a_sandbox() -> None:
    if landlock.abi()[0] < landlock.OLDEST_ABI:
        pytest.skip("this kernel has no Landlock")


def attack_from(root: Path, *, device: str) -> None:
    needs_a_sandbox()
    # What is to be kept from it is there before it begins: a verdict of an earlier run, too.
    results = make(root, "attacker", device=device)
    (results / "verdicts.csv").write_text("run_id,started_at\n")
    before = content(root)
    with daemons(root / "home"):
        run = kbench(root, "verify", "t/attacker", "--device", device, "--json", "--sandbox", "require")

    verdict = judged(run)["attacker"]
    reached, tried = attempts(verdict)
    assert reached == []
    assert tried > 150
    assert (verdict["status"], verdict["reason"]) == ("pass", ""), verdict["detail"]
    assert verdict["sandbox"].startswith("landlock:")
    assert content(root) == before
    assert re.search(r",attacker,pass,.*landlock:\d\+seccomp", (results / "verdicts.csv").read_text())


def test_an_attacker_reaches_nothing(tmp_path: Path) -> None:
    attack_from(tmp_path, device="cpu")


@pytest.mark.gpu
def test_an_attacker_reaches_nothing_beside_a_gpu(tmp_path: Path) -> None:
    attack_from(tmp_path, device="cuda")


def test_a_compiler_reaches_nothing_for_its_candidate(tmp_path: Path) -> None:
    needs_a_sandbox()
    make(tmp_path, "compiles_attacks", device="cpu")
    before = content(tmp_path)

    run = kbench(tmp_path, "verify", "t/compiles_attacks", "--json")

    verdict = judged(run)["compiles_attacks"]
    assert attempts(verdict) == ([], 5), verdict
    assert verdict["status"] == "pass", verdict["detail"]
    assert content(tmp_path) == before


def honest_pass(root: Path, names: list[str], *, device: str) -> None:
    needs_a_sandbox()
    make(root, *names, device=device)

    run = kbench(root, "verify", *(f"t/{name}" for name in names), "--device", device, "--json", "--sandbox", "require")

    told = {name: (verdict["status"], verdict["detail"], verdict["output_tail"]) for name, verdict in judged(run).items()}
    assert told == {name: ("pass", "", told[name][2]) for name in names}


def test_honest_candidates_work_in_the_sandbox(tmp_path: Path) -> None:
    names = ["works_inline", "works_daily", *(["works_triton"] if importlib.util.find_spec("triton") else [])]
    honest_pass(tmp_path, names, device="cpu")


@pytest.mark.gpu
def test_honest_candidates_work_in_the_sandbox_beside_a_gpu(tmp_path: Path) -> None:
    honest_pass(tmp_path, ["works_cuda", "works_triton", "works_daily"], device="cuda")


WITHOUT_LANDLOCK = """
import ctypes, os, struct, sys
# Answers ENOSYS to landlock_create_ruleset, as an older kernel does.
code = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7FFF0000)]
program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code), ctypes.addressof(program)))
assert libc.prctl(22, 2, header, 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""


def test_without_landlock_the_record_says_unsandboxed_and_require_refuses(tmp_path: Path) -> None:
    """A filter plays the older kernel."""
    results = make(tmp_path, "works_daily", device="cpu")
    prefix = (sys.executable, "-c", WITHOUT_LANDLOCK)

    free = kbench(tmp_path, "verify", "t/works_daily", "--json", prefix=prefix)
    required = kbench(tmp_path, "verify", "t/works_daily", "--sandbox", "require", prefix=prefix)

    verdict = judged(free)["works_daily"]
    assert verdict["status"] == "pass", verdict["detail"]
    assert verdict["sandbox"] == "unsandboxed (this kernel has no Landlock)"
    assert "unsandboxed (this kernel has no Landlock)" in (results / "verdicts.csv").read_text()
    assert required.returncode == 4
    assert "`--sandbox require`: unsandboxed (this kernel has no Landlock)" in required.stderr
    assert len((results / "verdicts.csv").read_text().splitlines()) == 2


FILTERED = """
import torch

def filtered():
    return next(line for line in open("/proc/self/status") if line.startswith("Seccomp:")).split()[1]

class {name}(torch.nn.Module):
    def forward(self, x):
        {note}
        return x * 2 + 1

def get_inputs():
    return [torch.randn(8, 8)]

def get_init_inputs():
    return []
"""


def test_both_sides_of_the_clock_have_a_system_call_filter(tmp_path: Path) -> None:
    """A filter makes each system call take longer; a reference without one would look faster than itself."""
    for path, text in {
        "kbench.toml": "",
        "references/t.py": FILTERED.format(name="Model", note=f"open({str(tmp_path / 'seen')!r}, 'a').write(filtered())"),
        "candidates/t/c.py": FILTERED.format(name="ModelNew", note="assert filtered() == '2'"),
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    command = [sys.executable, "-m", "kbench", "time", "--root", str(tmp_path), "--device", "cpu", "--repeat", "4"]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent), "KBENCH_CACHE_DIR": str(tmp_path / "cache")}

    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)

    assert run.returncode == 0, run.stdout + run.stderr
    # The judge, which verifies, and the process that is timed.
    assert set((tmp_path / "seen").read_text()) == {"0", "2"}
