"""The process that has imported torch once and forks every other one in milliseconds.

It touches no GPU and runs no tensor operation: a process that ran one parallel operation and then
forks leaves children that hang in OpenMP.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kbench.protocol import Channel, Closed, Message
from kbench.worker import keeper, warm

# Each is a module of this package with `main(args, fds)`; preloaded, so that a fork need not import it.
ROLES = ("judge", "candidate", "builder", "probe", "counter", "sanitizer")

# sysexits.h calls it EX_SOFTWARE: a worker of ours ended by a bug of ours.
EXIT_BUG = 70

# A keeper ends a fork bomb within a second or two.
_FORK_TRIES = 100
_FORK_PAUSE_S = 0.05

# Of workers that are our own: compilers start many.
_MOST_PROCESSES = 4096
# An orphan may fork while it is killed.
_SWEEP_ROUNDS = 1000

Role = Callable[[Mapping[str, Any], list[int]], None]


def main(control_fd: int, offer: Mapping[str, Any] | None = None) -> None:
    """Import torch, leave a warm process behind where one is wanted, and serve the parent."""
    control = socket.socket(fileno=control_fd)
    with _ending_with(control):
        roles = _preload()
    if offer is not None:
        warm.leave_behind(offer, lambda control: serve(control, roles))
    serve(Channel(control, accept_fds=True), roles)


@contextlib.contextmanager
def _ending_with(control: socket.socket) -> Iterator[None]:
    """End at once if the parent does: who imports for seconds does not see its end of the socket close."""
    keeper.end_with_parent(signal.SIGKILL)
    if select.select([control], [], [], 0)[0]:
        # Nothing is asked before this process is ready: the parent has gone already.
        os._exit(0)
    yield
    keeper.end_with_parent(0)


def serve(control: Channel, roles: Mapping[str, Role]) -> None:
    """Serve fork requests until the parent goes, then end what is left."""
    wake_read, wake_write = os.pipe()
    for fd in (wake_read, wake_write):
        os.set_blocking(fd, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write)
    # Ctrl-C reaches the whole foreground group; only the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Where a keeper is killed, by a kernel without memory say, what was below it comes to this process.
    keeper.become_reaper()
    keepers: dict[int, int] = {}
    control.send({"event": "ready", "pid": os.getpid()})
    try:
        while True:
            ready, _, _ = select.select([control.fileno(), wake_read], [], [])
            if wake_read in ready:
                os.read(wake_read, 4096)
                _reap(keepers)
            if control.fileno() in ready:
                _serve(control.receive(), control, keepers, roles)
                while control.has_message:
                    _serve(control.receive(), control, keepers, roles)
    except Closed:
        pass
    finally:
        for pid in keepers.values():
            _end(pid)
        while keepers:
            _reap(keepers, block=True)


def _preload() -> dict[str, Role]:
    modules = {name: importlib.import_module(f"kbench.worker.{name}") for name in ROLES}
    modules["candidate"].prepare()
    gc.collect()
    # Pages that the collector never touches stay shared with every child.
    gc.freeze()
    return {name: module.main for name, module in modules.items()}


def _serve(message: Message, control: Channel, keepers: dict[int, int], roles: Mapping[str, Role]) -> None:
    if message["op"] == "end":
        if pid := keepers.get(message["id"]):
            _end(pid)
        return
    fds = control.take_fds()
    # A keeper that is told to end before it listens would leave all to nobody.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    pid = _fork()
    if pid == 0:
        _become(roles[message["role"]], message, fds)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    for fd in fds:
        os.close(fd)
    if pid > 0:
        keepers[message["id"]] = pid


def _fork() -> int:
    """Fork; where no process is to be had, wait for a fork bomb's end, and give -1 at last.

    Who waits for the worker then sees its descriptors close.
    """
    for _ in range(_FORK_TRIES):
        try:
            return os.fork()
        except OSError:
            time.sleep(_FORK_PAUSE_S)
    return -1


def _become(role: Role, message: Message, fds: list[int]) -> None:
    """Turn this fork into the keeper of a worker; the first two descriptors are its output and status."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        kept = _only_descriptors(fds)
        output_fd, status_fd, *rest = kept
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(output_fd, 1)
        os.dup2(output_fd, 2)
        os.close(null)
        os.close(output_fd)
        args = message["args"]
        keeper.keep(
            lambda: role(args, rest),
            status_fd=status_fd,
            limits=keeper.Limits.from_json(args.get("limits") or {"max_processes": _MOST_PROCESSES}),
        )
    except BaseException:  # noqa: BLE001 - a fork must never return into the zygote's loop
        traceback.print_exc()
    finally:
        os._exit(EXIT_BUG)


def _only_descriptors(fds: list[int]) -> list[int]:
    """Close every descriptor but `fds`; nothing of the zygote's or of a sibling may leak into a candidate."""
    low = 10
    high = max(fds) + 1 + low
    moved = []
    for index, fd in enumerate(fds):
        os.dup2(fd, high + index, inheritable=False)
    os.closerange(3, high)
    for index in range(len(fds)):
        os.dup2(high + index, 3 + index, inheritable=False)
        moved.append(3 + index)
    os.closerange(3 + len(fds), 65536)
    return moved


def _reap(keepers: dict[int, int], *, block: bool = False) -> None:
    is_orphaned = False
    while True:
        try:
            pid, status = os.waitpid(-1, 0 if block else os.WNOHANG)
        except ChildProcessError:
            keepers.clear()
            return
        if pid == 0:
            break
        for job, keeper_pid in list(keepers.items()):
            if keeper_pid == pid:
                del keepers[job]
                is_orphaned |= os.WIFSIGNALED(status)
        if block:
            break
    if is_orphaned:
        _end_orphans(keepers)


def _end_orphans(keepers: dict[int, int]) -> None:
    """End what a keeper that was killed can end no more; its worker's death is asked of the kernel, but a worker can unask it."""
    for _ in range(_SWEEP_ROUNDS):
        orphans = [pid for pid in keeper.children() if pid not in keepers.values()]
        if not orphans:
            return
        keeper.end_trees(orphans)
        for pid in orphans:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _end(pid: int) -> None:
    """Ask a keeper for its end, also one that somebody has stopped: all below it would live on."""
    for number in (signal.SIGTERM, signal.SIGCONT):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]) if len(sys.argv) > 2 else None)  # noqa: PLR2004
