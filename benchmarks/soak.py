"""Kill kbench at random moments, resume, and see whether a verdict is lost, doubled or given to the wrong one.

    python benchmarks/soak.py [--rounds 200] [--seed 1] [--resume]

A round is a tree of good, slow and faulty candidates. kbench is started on those that have no row yet, and ended by
SIGKILL, SIGTERM or SIGINT at a random moment, until every candidate has its row. After every end: each line of the
results parses, what was written before is still there, what was told has a row, and no process, lock or scratch
folder is left. At the end of a round each candidate has exactly one row, with the verdict that it deserves.
With `--resume` kbench is asked to go on by itself instead of being given the rest.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import platform
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from kbench.store import Store  # noqa: E402

REFERENCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2 + 1

def get_inputs():
    return [torch.randn(16, 16)]

def get_init_inputs():
    return []
"""
HEAD = "import ctypes, os, sys, threading, time\nimport torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
# What a candidate does: the status and reason it deserves, and how often it is taken.
KINDS: dict[str, tuple[str, str, int, str]] = {
    "good": ("pass", "", 6, "return x * 2 + 1"),
    "noisy": ("pass", "", 2, "print('z' * 100_000); return x * 2 + 1"),
    "slow": ("pass", "", 3, "time.sleep(0.2); return x * 2 + 1"),
    "daemon": ("pass", "", 1, "os.fork() or (os.setsid(), time.sleep(600)); return x * 2 + 1"),
    "thread": ("pass", "", 1, "threading.Thread(target=time.sleep, args=(600,), daemon=True).start(); return x * 2 + 1"),
    "wrong": ("fail", "values", 3, "return x * 2 + 1.01"),
    "shape": ("fail", "shape", 1, "return (x * 2 + 1)[1:]"),
    "raises": ("fail", "run", 2, "raise ValueError('=cmd(),\\n\"no kernel today')"),
    "segfault": ("fail", "crash", 2, "ctypes.string_at(0)"),
    "leaves": ("fail", "crash", 2, "os._exit(0)"),
    "killed": ("fail", "crash", 1, "os.kill(os.getpid(), 9)"),
    "floods": ("fail", "crash", 1, "\n        while True: os.write(1, bytes(2**20))"),
}
LOOP = ("fail", "timeout", "\n        while True: pass")
DEADLINE_S = 120.0


@dataclass
class Tally:
    runs: int = 0
    rows: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    # By how kbench was ended.
    gone_s: dict[str, list[float]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class Round:
    """One tree, and kbench on it until every candidate has its row."""

    def __init__(self, folder: Path, random_: random.Random, tally: Tally, *, resume: bool) -> None:
        self._folder = folder
        self._random = random_
        self._tally = tally
        self._resume = resume
        self._root = folder / "project"
        self._expected: dict[str, tuple[str, str]] = {}
        self._token = uuid.uuid4().hex
        self._leader = 0
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(folder / "tmp"),
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "XDG_CACHE_HOME": str(folder / "run"),
            "KBENCH_CACHE_DIR": str(folder / "cache"),
            "KBENCH_LEASE_DIR": str(folder / "leases"),
            "KBENCH_WARM_S": "30" if random_.random() < 0.8 else "0",
            "SOAK": self._token,
        }

    def play(self, n_candidates: int) -> None:
        self._make(n_candidates)
        for attempt in range(40):
            rest = self._rest()
            if not rest:
                break
            self._run(rest, patient=attempt >= 4)
        self._check_end()
        subprocess.run([sys.executable, "-m", "kbench", "warm", "--end"], env=self._environment, cwd=self._root, capture_output=True, check=False)
        self._end_everybody()

    def _make(self, n_candidates: int) -> None:
        for name in ("tmp", "run"):
            (self._folder / name).mkdir(parents=True, mode=0o700)
        (self._root / "references").mkdir(parents=True)
        (self._root / "kbench.toml").write_text("[verify]\ntimeout_s = 60\n[time]\nbaselines = []\n")
        kinds = list(KINDS)
        for index in range(n_candidates):
            if index == 0 and self._random.random() < 0.15:
                self._candidate("loops", f"loop_{index}", *LOOP)
                with (self._root / "kbench.toml").open("a") as file:
                    file.write("[tasks.loops]\ntimeout_s = 2\n")
                self._tally.kinds["loop"] += 1
                continue
            kind = self._random.choices(kinds, [KINDS[name][2] for name in kinds])[0]
            status, reason, _, body = KINDS[kind]
            self._candidate(self._random.choice(["one", "two"]), f"{kind}_{index}", status, reason, body)
            self._tally.kinds[kind] += 1

    def _candidate(self, task: str, name: str, status: str, reason: str, body: str) -> None:
        (self._root / f"references/{task}.py").write_text(REFERENCE)
        path = self._root / f"candidates/{task}/{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{HEAD}        {body}\n")
        self._expected[f"{task}/{name}"] = (status, reason)

    def _rest(self) -> list[str]:
        have = {f"{row.task}/{row.candidate}" for row in Store(self._root / "results").read_verdicts()[0]}
        return [label for label in self._expected if label not in have]

    def _run(self, rest: list[str], *, patient: bool) -> None:
        command = [sys.executable, "-m", "kbench", "verify", "--json", "--device", "cpu", "--jobs", str(self._random.randint(1, 3))]
        command += ["--resume"] if self._resume else rest
        before = self._csv()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen(command, cwd=self._root, env=self._environment, stdout=out, stderr=err, start_new_session=True)
            self._leader = process.pid
            end = self._end(process, patient=patient)
            ended_s = time.monotonic()
            code = process.wait(DEADLINE_S)
            self._await_nobody(end, ended_s)
            out.seek(0)
            err.seek(0)
            told, said = out.read().decode(errors="replace"), err.read().decode(errors="replace")
        self._tally.runs += 1
        self._tally.ends[end] += 1
        self._check_run(end, code, before, told, said)

    def _end(self, process: subprocess.Popen[bytes], *, patient: bool) -> str:
        if patient:
            try:
                process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                self._wrong(f"not done after {DEADLINE_S:g} s")
                process.kill()
                return "SIGKILL"
            return "let finish"
        number = self._random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
        # Most moments of a run are early ones: a few candidates, some of them slow.
        delay_s = self._random.choice([0.3, 1.0, 2.0, 5.0]) * self._random.random()
        try:
            process.wait(delay_s)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
            if number != signal.SIGKILL and self._random.random() < 0.3:
                process.send_signal(number)
            return signal.Signals(number).name
        return "finished"

    def _check_run(self, end: str, code: int, before: bytes, told: str, said: str) -> None:
        if not self._csv().startswith(before):
            self._wrong(f"rows of before have gone after {end}")
        rows, problems = Store(self._root / "results").read_verdicts()
        for problem in problems:
            self._wrong(f"{problem} after {end}")
        have = Counter(f"{row.task}/{row.candidate}" for row in rows)
        for label, count in have.items():
            if count > 1:
                self._wrong(f"{label} has {count} rows")
        for line in told.splitlines():
            try:
                label = "{task}/{candidate}".format(**json.loads(line))
            except ValueError:
                # A line may be cut off by SIGKILL alone.
                if end != "SIGKILL":
                    self._wrong(f"no JSON after {end}: {line[:80]!r}")
                continue
            if label not in have:
                self._wrong(f"{label} was told and has no row after {end}")
        # Before Python has its handlers, a signal ends it as the system does.
        usual = {"SIGKILL": {-9}, "SIGTERM": {130, -15}, "SIGINT": {130, -2}}.get(end, {0, 1})
        if code not in usual and not (code in (0, 1) and end != "SIGKILL"):
            self._wrong(f"exit code {code} after {end}: {said[-400:]}")
        self._check_lock()

    def _check_lock(self) -> None:
        path = self._root / "results/.lock"
        if path.exists():
            with path.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    self._wrong("the lock of the results is held by nobody that lives")

    def _check_end(self) -> None:
        rows, _ = Store(self._root / "results").read_verdicts()
        found = {f"{row.task}/{row.candidate}": (row.status, row.reason) for row in rows}
        self._tally.rows += len(rows)
        for label, deserved in self._expected.items():
            if found.get(label) != deserved:
                detail = next((row.detail for row in rows if f"{row.task}/{row.candidate}" == label), "")
                self._wrong(f"{label}: {found.get(label)} instead of {deserved}: {detail[:200]}")

    def _await_nobody(self, end: str, since_s: float) -> None:
        """Wait until no process of the run and no scratch folder is left; how long that took."""
        while left := self._left():
            if time.monotonic() - since_s > DEADLINE_S:
                self._wrong(f"left behind: {left}")
                self._end_everybody()
                return
            time.sleep(0.01)
        self._tally.gone_s.setdefault(end, []).append(time.monotonic() - since_s)

    def _left(self) -> list[str]:
        processes = [f"process {pid} {name}" for pid, name in self._processes() if "warm" not in name]
        return processes + [str(path) for path in (self._folder / "tmp").glob("kbench-*")]

    def _processes(self) -> list[tuple[int, str]]:
        found = []
        mark = f"SOAK={self._token}".encode()
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                try:
                    if mark in Path(f"/proc/{name}/environ").read_bytes():
                        found.append((int(name), "warm" if self._is_warm(int(name)) else Path(f"/proc/{name}/cmdline").read_text()[:60]))
                except OSError:
                    continue
        return found

    def _is_warm(self, pid: int) -> bool:
        """Whether it is the process that waits for the next command: a zygote that is nobody's, in a session that nobody leads.

        Those that serve a command are its children, or the command's own.
        """
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        parent, session = int(fields[1]), int(fields[3])
        return all(
            [
                "kbench.worker.zygote" in Path(f"/proc/{pid}/cmdline").read_text(),
                session not in (pid, self._leader),
                "kbench" not in Path(f"/proc/{parent}/cmdline").read_text(),
            ]
        )

    def _end_everybody(self) -> None:
        for pid, _ in self._processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def _csv(self) -> bytes:
        path = self._root / "results/verdicts.csv"
        return path.read_bytes() if path.exists() else b""

    def _wrong(self, text: str) -> None:
        self._tally.problems.append(f"{self._folder.name}: {text}")
        print(f"WRONG {self._folder.name}: {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--candidates", type=int, default=5)
    parser.add_argument("--resume", action="store_true")
    asked = parser.parse_args()
    random_ = random.Random(asked.seed)
    tally = Tally()
    began_s = time.monotonic()
    top = Path(tempfile.mkdtemp(prefix="soak-"))
    for number in range(1, asked.rounds + 1):
        folder = top / f"round-{number}"
        wrong_before = len(tally.problems)
        Round(folder, random.Random(random_.getrandbits(64)), tally, resume=asked.resume).play(asked.candidates)
        if len(tally.problems) == wrong_before:
            shutil.rmtree(folder, ignore_errors=True)
        if number % 10 == 0 or number == asked.rounds:
            tell(number, tally, time.monotonic() - began_s)
    return 1 if tally.problems else 0


def tell(rounds: int, tally: Tally, seconds: float) -> None:
    gone = sorted(seconds for end in tally.gone_s.values() for seconds in end) or [0.0]
    most = ", ".join(f"{end} {max(seconds):.2f}" for end, seconds in tally.gone_s.items())
    print(
        f"{platform.node()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}, {seconds / 60:.0f} min: {rounds} rounds, {tally.runs} runs of kbench, "
        f"{tally.rows} rows; ends {dict(tally.ends)}; nobody left after median {statistics.median(gone):.2f} s, "
        f"95 % {gone[int(0.95 * (len(gone) - 1))]:.2f} s, most by end {most}; {len(tally.problems)} wrong; kinds {dict(tally.kinds)}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
