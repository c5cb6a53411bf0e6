"""Processor time that nobody asked for, of real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from kbench.worker.timing import idle

# A process that starts another one, which works for as long as its input stays open, and says so.
WORKER = """
import subprocess, sys
helper = subprocess.Popen([sys.executable, "-c", '''
import os, threading
done = threading.Thread(target=os.read, args=(0, 1)); done.start()
print("busy", flush=True)
while done.is_alive(): pass
print("quiet", flush=True)
os.read(0, 1)
'''])
print("started", flush=True)
helper.wait()
"""


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[str]]:
    """A keeper with a worker with a busy helper, as the clock meets them."""
    keeper = subprocess.Popen(
        [sys.executable, "-c", "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])", WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert keeper.stdout is not None
    assert {keeper.stdout.readline().strip() for _ in range(2)} == {"started", "busy"}
    yield keeper
    keeper.kill()
    keeper.communicate()


def worker_of(keeper: int) -> int:
    with open(f"/proc/{keeper}/task/{keeper}/children") as children:
        return int(children.read().split()[0])


def test_a_helper_that_works_is_waited_for_until_it_rests(busy: subprocess.Popen[str]) -> None:
    worker = worker_of(busy.pid)
    waiting = threading.Thread(target=idle.wait_until_quiet, args=(worker,), kwargs={"limit_s": 600.0})
    before_s = idle.cpu_seconds(worker)
    waiting.start()
    while idle.cpu_seconds(worker) < before_s + 0.3:
        os.sched_yield()
    assert waiting.is_alive()

    assert busy.stdin is not None
    busy.stdin.write("x")
    busy.stdin.flush()
    waiting.join(60)

    assert not waiting.is_alive()


def test_nobody_waits_for_ever(busy: subprocess.Popen[str]) -> None:
    started = time.monotonic()

    idle.wait_until_quiet(worker_of(busy.pid), limit_s=0.2)

    assert time.monotonic() - started >= 0.2


def test_a_process_without_helpers_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it was waited for"))
    keeper = subprocess.Popen(
        [sys.executable, "-c", "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert keeper.stdout is not None
    keeper.stdout.readline()

    idle.wait_until_quiet(worker_of(keeper.pid), limit_s=600.0)

    keeper.communicate(b"\n")
