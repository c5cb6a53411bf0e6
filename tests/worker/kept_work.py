"""What workers do in the tests of the keeper: run as `kept_work.py WORK STATUS_FD ALIVE_FD OPTIONS`.

Every process of a worker holds the alive descriptor: when its other end reads the end of the file,
none is left. Work that must go on writes `ready` to it first.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kbench.worker import keeper, landlock

# Should a keeper fail, nothing of this may outlive the tests, nor fill the machine with processes.
_LAST_RESORT_S = 20
_FORKS_AT_MOST = 1500

_born_s = time.monotonic()
# Each fork takes a byte.
_tokens, _fill = os.pipe()
os.write(_fill, bytes(_FORKS_AT_MOST))
os.set_blocking(_tokens, False)
status_fd = int(sys.argv[2])
alive_fd = int(sys.argv[3])
SCRATCH = json.loads(sys.argv[4]).get("scratch", "")
_kept: list[object] = []


def go_on() -> None:
    """Say so, and go on until the time of all is over."""
    os.write(alive_fd, b"ready\n")
    while (left_s := _born_s + _LAST_RESORT_S - time.monotonic()) > 0:
        time.sleep(left_s)
    os._exit(99)


def fork() -> bool:
    """Fork; true in the child, which ends when the time of all is over."""
    left_s = _born_s + _LAST_RESORT_S - time.monotonic()
    try:
        os.read(_tokens, 1)
    except BlockingIOError:
        go_on()
    if os.fork():
        return False
    signal.alarm(max(int(left_s), 1))
    return True


def return_() -> None:
    print("printed, not flushed")


def exit_3() -> None:
    os._exit(3)


def exit_0() -> None:
    os._exit(0)


def exit_text() -> None:
    sys.exit("words")


def exit_none() -> None:
    sys.exit()


def raise_() -> None:
    raise ValueError("what went wrong")


def raise_base() -> None:
    class Rude(BaseException):
        def __str__(self) -> str:
            raise self

    raise Rude


def segfault() -> None:
    ctypes.string_at(0)


def abort() -> None:
    os.abort()


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_group() -> None:
    os.killpg(0, signal.SIGKILL)


def stop_itself() -> None:
    os.write(alive_fd, b"ready\n")
    os.kill(os.getpid(), signal.SIGSTOP)


def ignore_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    go_on()


def daemon() -> None:
    """A daemon as in the books: two forks with a session between them, and signals ignored."""
    ready, announce = os.pipe()
    if fork():
        os.setsid()
        if fork():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.write(announce, b"x")
            go_on()
        os._exit(0)
    os.read(ready, 1)


def daemon_of_children() -> None:
    """Each in a group of its own; some stopped, and one a daemon."""
    ready, announce = os.pipe()
    for index in range(5):
        if fork():
            os.setsid()
            os.write(announce, b"x")
            if index % 2:
                os.kill(os.getpid(), signal.SIGSTOP)
            go_on()
    for _ in range(5):
        os.read(ready, 1)
    daemon()


def zombie() -> None:
    """A child that has ended already is nothing that had to be ended."""
    ended, hold = os.pipe()
    if fork():
        os._exit(0)
    os.close(hold)
    os.read(ended, 1)
    # Its descriptors close before it has ended.
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)


def fork_bomb() -> None:
    while True:
        fork()


def fork_bomb_of_sessions() -> None:
    while True:
        if fork():
            os.setsid()


def threads() -> None:
    import threading

    release = threading.Event()
    crowd = [threading.Thread(target=release.wait) for _ in range(100)]
    for thread in crowd:
        thread.start()
    # Two looks at least: the keeper reads the list of our threads in each.
    _await_looks(2)
    release.set()
    for thread in crowd:
        thread.join()


def _await_looks(number: int) -> None:
    """Wait until the keeper has read that many more files; it reads some only when it looks."""

    def calls() -> int:
        fields = Path(f"/proc/{os.getppid()}/io").read_text().split()
        return int(fields[fields.index("syscr:") + 1])

    start = calls()
    while calls() < start + 10 * number and time.monotonic() < _born_s + _LAST_RESORT_S:
        os.sched_yield()


def hog() -> None:
    taken = []
    for _ in range(200):
        taken.append(bytearray(b"x") * 2**22)
    go_on()


def hog_in_children() -> None:
    """No process alone is beyond the limit."""
    for _ in range(8):
        if fork():
            _held = bytearray(b"x") * (40 * 2**20)
            go_on()
    go_on()


def fill_disk() -> None:
    """Up to 2 GB in files of 8 MB."""
    for index in range(256):
        Path(SCRATCH, str(index)).write_bytes(bytes(2**23))
    go_on()


def fill_disk_namelessly() -> None:
    """Files that no walk through the folder finds."""
    for _ in range(256):
        file = tempfile.TemporaryFile(dir=SCRATCH)  # noqa: SIM115 - stays open
        file.write(bytes(2**23))
        file.flush()
        _kept.append(file)
    go_on()


def fill_disk_with_names() -> None:
    for index in range(20_000):
        Path(SCRATCH, str(index)).touch()
    go_on()


def nest_folders() -> None:
    os.chdir(SCRATCH)
    for _ in range(1100):
        os.mkdir("d" * 20)
        os.chdir("d" * 20)


def hog_in_memfds() -> None:
    """Written, not mapped: in no process's own memory."""
    for _ in range(64):
        descriptor = os.memfd_create("hog")
        os.write(descriptor, bytes(2**24))
    go_on()


def count_tasks() -> None:
    """How many forks are let through, as the exit code; at most 100."""
    n_forks = 0
    for _ in range(100):
        try:
            if os.fork() == 0:
                go_on()
        except OSError:
            break
        n_forks += 1
    sys.exit(n_forks)


def share() -> None:
    """A page shared by nine processes is one page: together they do not exceed what one has."""
    held = bytearray(b"x") * (64 * 2**20)
    children = []
    for _ in range(8):
        ready, announce = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(announce, b"x")
            go_on()
        os.read(ready, 1)
        children.append(pid)
    together = sum(map(keeper._pss_bytes, [os.getpid(), *children]))
    sys.exit(0 if len(held) < together < 3 * len(held) else 1)


def has_no_status_descriptor() -> None:
    sys.exit(1 if str(status_fd) in os.listdir("/proc/self/fd") else 0)


def has_a_session() -> None:
    sys.exit(0 if os.getsid(0) == os.getpid() == os.getpgrp() else 1)


def has_clean_signals() -> None:
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    sys.exit(0 if not blocked and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL else 1)


def attack() -> None:
    """Confined, a worker has no way to end, stop or starve its keeper."""
    from kbench.worker.confine import Policy, confine

    with tempfile.TemporaryDirectory() as scratch:
        confine(Policy(scratch=Path(scratch)))
        victim = os.getppid()
        refused = 0
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for target in (victim, -os.getpgid(victim)):
                try:
                    os.kill(target, number)
                except PermissionError:
                    refused += 1
        os._exit(refused)


def both_ways() -> None:
    """The list of children, and a scan of all processes, tell the same."""
    children = []
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            go_on()
        children.append(pid)
    me = os.getpid()
    sys.exit(0 if sorted(keeper._children(me)) == sorted(keeper._children_by_scan()(me)) == sorted(children) else 1)


WORK: dict[str, Callable[[], None]] = {
    name.strip("_"): function for name, function in globals().items() if callable(function) and function.__module__ == __name__
}


def main() -> None:
    options = json.loads(sys.argv[4])
    if options.pop("unfenced", False):
        landlock.fence_signals = lambda: False
    if options.pop("unlisted", False):
        keeper._OWN_CHILDREN = "/proc/no-such-list"
    if options.pop("grandparent", False) and os.fork():
        # The keeper's parent: waits to be killed.
        os.close(status_fd)
        os.close(alive_fd)
        time.sleep(_LAST_RESORT_S)
    keeper.keep(WORK[sys.argv[1]], status_fd=status_fd, limits=keeper.Limits.from_json(options))


if __name__ == "__main__":
    main()
