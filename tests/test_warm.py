"""The process that outlives a command: used where it will do, replaced on any doubt, out of a candidate's reach."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbench import warm
from kbench.sandbox import Zygote

REPOSITORY = Path(__file__).parents[1]
REFERENCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1

def get_inputs():
    return [torch.randn(4)]

def get_init_inputs():
    return []
"""
INTRUDER = """
import errno, os, socket

def attempt(act):
    try:
        act()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"

outcome = [
    attempt(lambda: socket.socket(socket.AF_UNIX).connect({path!r})),
    attempt(lambda: os.kill({pid}, 9)),
    attempt(lambda: os.listdir({folder!r})),
    attempt(lambda: os.unlink({path!r})),
]
raise RuntimeError(" ".join(outcome))

class ModelNew:
    pass
"""


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime folder of this test's own; what it leaves behind is ended."""
    # A socket's path is short.
    with tempfile.TemporaryDirectory(prefix="kbench-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)
        left = warm.end()
        if left is not None:
            wait_for_end(left["pid"])


def wait_for_end(pid: int) -> None:
    """Block until a process that is no child of this one has gone."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        import select

        assert select.select([descriptor], [], [], 60)[0], f"process {pid} is still there"
    finally:
        os.close(descriptor)


def command(*, kill: bool = False) -> dict[str, object]:
    """What a command does: start a zygote, have it fork a probe, end it; the machine's facts and the zygote's parent."""

    async def run() -> dict[str, object]:
        zygote = Zygote(warm_s=60.0)
        await zygote.start()
        assert zygote._socket is not None
        found = {"from_warm": zygote._pid, "child": zygote._process.pid if zygote._process else 0}
        if kill:
            # As the kernel ends a command: nothing is said.
            zygote._socket.close()
            zygote._log.close()
            return found
        with tempfile.TemporaryDirectory() as scratch:
            worker = zygote.spawn("probe", {"scratch": scratch, "visible": None})
            found["ending"] = await worker.end(grace_s=60.0)
        await zygote.close()
        return found

    return asyncio.run(run())


def waiting() -> int:
    """The process that waits for the next command; it comes up beside the first one."""
    for _ in range(600):
        found = warm.status()
        if found is not None:
            return int(found["pid"])
        os.sched_yield()
        subprocess.run([sys.executable, "-c", ""], check=True)
    raise AssertionError("no process waits")


def test_one_command_starts_it_and_the_next_ones_are_forked_from_it(runtime: Path) -> None:
    first = command()
    pid = waiting()
    second, third = command(), command()

    assert first["child"]
    assert not first["from_warm"]
    assert second["from_warm"] != third["from_warm"]
    assert second["from_warm"]
    assert not second["child"]
    wait_for_end(int(str(third["from_warm"])))
    found = warm.status()
    assert found is not None
    assert (found["pid"], found["served"]) == (pid, 2)


def test_another_environment_or_a_changed_file_replaces_it(runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "packages"
    package.mkdir()
    monkeypatch.setenv("PYTHONPATH", f"{REPOSITORY}:{package}")
    command()
    pids = [waiting()]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert command()["child"]
    wait_for_end(pids[-1])
    pids.append(waiting())
    # A module that an import would find now.
    (package / "of_tomorrow.py").touch()
    assert command()["child"]
    wait_for_end(pids[-1])
    pids.append(waiting())

    assert len(set(pids)) == 3
    assert command()["from_warm"]


def test_one_that_hangs_is_ended_and_none_that_others_may_enter_is_used(runtime: Path) -> None:
    command()
    pid = waiting()
    os.kill(pid, signal.SIGSTOP)
    assert command()["child"]
    wait_for_end(pid)
    (runtime / "kbench").chmod(0o755)

    assert warm.socket_path() is None
    assert warm.status() is None
    (runtime / "kbench").chmod(0o700)


def test_a_command_that_is_killed_takes_its_zygote_along_and_leaves_the_warm_one(runtime: Path) -> None:
    command()
    pid = waiting()
    killed = command(kill=True)

    wait_for_end(int(str(killed["from_warm"])))
    assert waiting() == pid


def test_who_listens_in_its_place_as_another_user_is_not_believed(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = warm.socket_path()
    assert path is not None
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        monkeypatch.setattr(warm, "_peer", lambda _: (1, os.geteuid() + 1, 0))
        assert warm.connect({}, 1) is None


def test_a_candidate_can_neither_reach_nor_end_it(runtime: Path, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(REFERENCE)
    (tmp_path / "c.py").write_text(REFERENCE.split("def get_inputs")[0].replace("Model(", "ModelNew("))
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "KBENCH_WARM_S": "60", "KBENCH_CACHE_DIR": str(tmp_path / "cache")}

    def verify() -> dict[str, object]:
        arguments = ["verify", "--reference", "r.py", "--candidate", "c.py", "--json", "--device", "cpu"]
        run = subprocess.run([sys.executable, "-m", "kbench", *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        return dict(json.loads(run.stdout))

    assert verify()["status"] == "pass"
    pid = waiting()
    path = warm.socket_path()
    (tmp_path / "c.py").write_text(INTRUDER.format(path=str(path), pid=pid, folder=str(runtime)))

    assert "RuntimeError: ECONNREFUSED EPERM EACCES EACCES" in str(verify()["detail"])
    assert waiting() == pid


def test_it_can_be_seen_and_ended_and_is_not_left_where_it_is_not_wanted(runtime: Path, tmp_path: Path) -> None:
    def kbench(*arguments: str, **more: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "KBENCH_WARM_S": "60", **more}
        run = subprocess.run([sys.executable, "-m", "kbench", *arguments], cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
        return run.stdout + run.stderr

    command()
    pid = waiting()
    assert f"process {pid} waits" in kbench("warm")
    assert f"ended process {pid}" in kbench("warm", "--end")
    wait_for_end(pid)
    assert "no process waits" in kbench("warm")
    assert "KBENCH_WARM_S" in kbench("verify", KBENCH_WARM_S="long")
    shutil.copytree(REPOSITORY / "references", tmp_path / "references")
    (tmp_path / "kbench.toml").touch()
    assert "nothing is selected" in kbench("verify", "--no-warm", "--root", str(tmp_path))
    assert warm.status() is None
