"""kbench ended at any moment, by real signals: no process, no lock, no scratch folder is left, and no row is lost."""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbench.sandbox import Zygote

ROOT = Path(__file__).parents[1]
# Far above what any of this takes; only a hang gets there.
DEADLINE_S = 120

REFERENCE = """
import os
import torch

def note(what):
    with open(os.environ["CALLS"], "a") as file:
        file.write(what)

class Model(torch.nn.Module):
    def forward(self, x):
        note("f")
        return x * 2 + 1

def get_inputs():
    return [torch.randn(8, 8)]

def get_init_inputs():
    return []
"""
GOOD = "import ctypes, os, time\nimport torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x * 2 + 1\n"
LOOP = GOOD.replace("return x * 2 + 1", "while True: pass")
# A compiler that works for hours.
BUILDS = (
    """
import torch
from torch.utils.cpp_extension import load_inline
load_inline(
    name="hours",
    cpp_sources="constexpr long count() { long n = 0; for (long i = 0; i < (1L << 50); i++) n += i & 3; return n; }\\nlong n[count() & 1];",
    extra_cflags=["-fconstexpr-loop-limit=2147483647", "-fconstexpr-ops-limit=9223372036854775807"],
    no_implicit_headers=True,
    is_python_module=False,
)
"""
    + GOOD
)
# Its kernel sends it no signal when its keeper ends, and it leaves a daemon.
CLINGS = GOOD.replace(
    "return x * 2 + 1",
    "ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)\n        if os.fork() == 0:\n            os.setsid()\n            time.sleep(600)\n        time.sleep(600)",
)
# kbench up to the moment when it asks another process what the machine is: about to ask, or waiting for the answer.
KILLED_WHILE_PROBING = """
import asyncio, os, signal, sys
from pathlib import Path
from kbench.engines import job, machine

class Channel:
    async def receive(self):
        os.kill(os.getpid(), signal.SIGKILL)

channel, fd = machine.channel_pair()
machine.channel_pair = lambda: (Channel(), fd)
if sys.argv[1] == "about":
    machine.Zygote.spawn = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(machine.Machine(job.Options(jobs=1, seed=1, cache=Path("cache")), job.Events()).start())
"""
FILES = {
    "references/t.py": REFERENCE,
    "candidates/t/a_good.py": GOOD,
    "candidates/t/b_loop.py": LOOP,
    "candidates/t/c_builds.py": BUILDS,
    "candidates/t/d_clings.py": CLINGS,
    "candidates/t/e_good.py": GOOD,
    "kbench.toml": "[time]\nbaselines = []\n",
}


class Run:
    """kbench at work in a tree of its own; all of its processes carry a mark in their environment."""

    def __init__(self, folder: Path, *arguments: str, program: tuple[str, ...] = ("-m", "kbench")) -> None:
        self.root = folder / "project"
        for name, text in FILES.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.scratch = folder / "scratch"
        self.scratch.mkdir()
        self.calls = folder / "calls"
        self.calls.touch()
        self._mark = uuid.uuid4().hex
        self.process = subprocess.Popen(
            [sys.executable, *program, *arguments],
            cwd=self.root,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "KBENCH_CACHE_DIR": str(folder / "cache"),
                "KBENCH_LEASE_DIR": str(folder / "leases"),
                "TMPDIR": str(self.scratch),
                "CALLS": str(self.calls),
                "MARK": self._mark,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.folder = folder

    def processes(self) -> list[int]:
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    if f"MARK={self._mark}".encode() in Path(f"/proc/{name}/environ").read_bytes():
                        found.append(int(name))
                except OSError:
                    continue
        return found

    def names(self) -> set[str]:
        found = set()
        for pid in self.processes():
            try:
                found.add(Path(f"/proc/{pid}/comm").read_text().strip())
            except OSError:
                continue
        return found

    def await_that(self, condition: Callable[[], Any], what: str) -> Any:
        deadline_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline_s:
            if found := condition():
                return found
            select.select([], [], [], 0.01)
        pytest.fail(f"{what}; there are {self.names()}")

    def await_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def await_nothing(self) -> None:
        """Nothing of it is left, and no lock is held."""
        self.await_that(lambda: not self.processes(), "some process is left")
        self.await_that(lambda: not list(self.scratch.glob("kbench-*")), "a scratch folder is left")
        for path in [self.root / "results/.lock", *(self.folder / "cache/builds/locks").glob("*")]:
            if path.exists():
                with path.open() as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def rows(self) -> list[str]:
        path = self.root / "results/verdicts.csv"
        return [line.split(",")[3] for line in path.read_text().splitlines()[1:]] if path.exists() else []

    def close(self) -> None:
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.communicate()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def begin(*arguments: str, **options: Any) -> Run:
        runs.append(Run(tmp_path, *arguments, **options))
        return runs[-1]

    yield begin
    for run in runs:
        run.close()


def children_of(pid: int) -> list[int]:
    try:
        return [int(child) for task in os.listdir(f"/proc/{pid}/task") for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
    except OSError:
        return []


def descendants_of(pid: int) -> list[int]:
    return [found for child in children_of(pid) for found in (child, *descendants_of(child))]


def works_in_scratch(pid: int) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/cwd").endswith("/own")
    except OSError:
        return False


# The moments: arguments, and how to know that it has come.


def has_started(run: Run) -> object:
    return children_of(run.process.pid)


def is_compiling(run: Run) -> object:
    return "cc1plus" in run.names()


def is_judging(run: Run) -> object:
    return "a_good" in run.rows()


def is_timing(run: Run) -> object:
    return run.calls.stat().st_size > 100


MOMENTS: dict[str, tuple[tuple[str, ...], Callable[[Run], object], list[str]]] = {
    "start": (("verify", "t/a_good"), has_started, []),
    "build": (("verify", "t/c_builds"), is_compiling, []),
    "judge": (("verify", "t/a_good", "t/b_loop", "--jobs", "1"), is_judging, ["a_good"]),
    "time": (("time", "t/a_good", "--repeat", "100000"), is_timing, []),
}
INT, TERM, KILL = signal.SIGINT, signal.SIGTERM, signal.SIGKILL


@pytest.mark.parametrize(
    ("moment", "numbers"),
    [
        ("start", (TERM,)),
        ("start", (KILL,)),
        ("build", (INT,)),
        ("build", (TERM, TERM)),
        ("build", (KILL,)),
        ("judge", (INT, INT)),
        ("judge", (TERM,)),
        ("judge", (KILL,)),
        ("time", (INT,)),
        ("time", (TERM, INT, TERM)),
        ("time", (KILL,)),
    ],
)
def test_whenever_it_is_ended_nothing_is_left_and_no_row_is_lost(start: Callable[..., Run], moment: str, numbers: tuple[signal.Signals, ...]) -> None:
    arguments, has_come, rows = MOMENTS[moment]
    run = start(*arguments, "--device", "cpu")
    run.await_that(lambda: has_come(run), f"the moment `{moment}` did not come")

    for number in numbers:
        run.process.send_signal(number)

    _, said = run.process.communicate(timeout=DEADLINE_S)
    if KILL in numbers:
        assert run.process.returncode == -KILL
    else:
        assert run.process.returncode == 130, said
        assert "Traceback" not in said
    run.await_nothing()
    assert run.rows() == rows


@pytest.mark.parametrize("moment", ["about", "waiting"])
def test_who_is_killed_while_the_machine_is_probed_leaves_nothing(start: Callable[..., Run], moment: str) -> None:
    run = start(moment, program=("-c", KILLED_WHILE_PROBING))
    run.process.communicate(timeout=DEADLINE_S)

    assert run.process.returncode == -KILL
    run.await_nothing()


def test_a_killed_keeper_leaves_no_orphan_and_the_run_goes_on(start: Callable[..., Run]) -> None:
    """As when the kernel has no memory; a worker may have seen to it that it outlives its keeper."""
    run = start("verify", "t/d_clings", "t/e_good", "--jobs", "1", "--device", "cpu")

    def clinging() -> tuple[int, list[int]] | None:
        (zygote,) = children_of(run.process.pid) or (0,)
        families = {keeper: descendants_of(keeper) for keeper in children_of(zygote)}
        # The keeper of the candidate has two below it that work in its scratch folder.
        return next(((keeper, below) for keeper, below in families.items() if sum(map(works_in_scratch, below)) > 1), None)

    keeper, below = run.await_that(clinging, "the candidate never began")

    os.kill(keeper, signal.SIGKILL)

    run.await_that(lambda: not set(below) & set(run.processes()), "an orphan is left")
    told, said = run.process.communicate(timeout=DEADLINE_S)
    assert run.process.returncode == 4, said
    assert "machine: the process that watched it was killed" in told, said
    assert "pass  t/e_good" in told
    run.await_nothing()


@pytest.mark.parametrize("number", [TERM, KILL])
def test_a_stopped_keeper_is_ended_with_all_below_it(start: Callable[..., Run], number: signal.Signals) -> None:
    run = start("verify", "t/b_loop", "--jobs", "1", "--device", "cpu")
    run.await_that(lambda: run.calls.stat().st_size, "the candidate never began")
    (zygote,) = children_of(run.process.pid)
    keepers = children_of(zygote)
    for keeper in keepers:
        os.kill(keeper, signal.SIGSTOP)

    run.process.send_signal(number)

    run.process.communicate(timeout=DEADLINE_S)
    run.await_nothing()


def test_a_killed_zygote_is_an_error_and_leaves_nothing(start: Callable[..., Run]) -> None:
    run = start("verify", "t/a_good", "t/b_loop", "--jobs", "1", "--device", "cpu")
    assert "pass  t/a_good" in run.await_line()
    (zygote,) = children_of(run.process.pid)

    os.kill(zygote, signal.SIGKILL)

    _, said = run.process.communicate(timeout=DEADLINE_S)
    assert run.process.returncode == 4, said
    run.await_nothing()
    assert run.rows()[0] == "a_good"


def test_a_zygote_that_is_still_loading_is_not_waited_for() -> None:
    """It hears nothing while it imports torch, and whoever gave up a command would wait for that."""

    async def interrupted() -> int | None:
        zygote = Zygote()
        starting = asyncio.create_task(zygote.start())
        while zygote._process is None:
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await zygote.close()
        return zygote._process.returncode

    assert asyncio.run(interrupted()) == -signal.SIGKILL
