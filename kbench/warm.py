"""A process with torch imported that outlives a command: where it is, and whether it will do for this one.

It only forks (`worker/warm.py` is its half): each command gets a zygote of its own from it, so that nothing
of one command reaches the next. It is never needed: on any doubt a command starts afresh.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import kbench
from kbench.protocol import Channel, Message, ProtocolError, encode

# A fork and some lookups, on a loaded machine.
ANSWER_S = 3.0
# What torch and its libraries do not look at while they are imported; a command has its own all the same.
_PASSING = frozenset(
    "PWD OLDPWD SHLVL _ TERM COLORTERM COLUMNS LINES NO_COLOR FORCE_COLOR CLICOLOR LS_COLORS PS1 SSH_CLIENT SSH_CONNECTION SSH_TTY "
    "SSH_AUTH_SOCK TMUX TMUX_PANE STY WINDOW WINDOWID XDG_SESSION_ID KBENCH_CACHE_DIR KBENCH_CACHE_GB KBENCH_WARM_S PYTEST_CURRENT_TEST".split()
)
# What a process inherits and a fork of another one would not have, by the names in /proc/self/status.
_INHERITED = ("Umask", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "SigIgn", "Cpus_allowed", "Mems_allowed")
_INHERITED_FILES = ("cgroup", "limits", "oom_score_adj", "attr/current")
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts", "time")


def folder() -> Path | None:
    """The folder of the socket, private to the user; None where there can be none."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    # Not within the build cache: candidates may read that.
    chosen = Path(runtime) / "kbench" if runtime and _is_private(Path(runtime)) else cache / "kbench-warm"
    try:
        chosen.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    return chosen if _is_private(chosen) else None


def _is_private(path: Path) -> bool:
    """A folder of this user's that nobody else may enter; no link to one."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def socket_path() -> Path | None:
    """Where the process of this user on this machine listens."""
    place = folder()
    # A home may be shared by machines.
    return None if place is None else place / f"{hashlib.sha256(platform.node().encode()).hexdigest()[:12]}.sock"


def key(environment: Mapping[str, str]) -> str:
    """Name all that a worker inherits from its command: a process of another key is no use to it."""
    facts = {
        "kbench": [kbench.__version__, kbench.__file__],
        "python": [sys.executable, sys.version, repr(sys.flags)],
        "user": [os.getresuid(), os.getresgid(), sorted(os.getgroups())],
        "folder": os.getcwd(),
        "environment": {name: value for name, value in environment.items() if name not in _PASSING},
        "status": [line for line in _read("/proc/self/status").splitlines() if line.partition(":")[0] in _INHERITED],
        "inherited": [_read(f"/proc/self/{name}") for name in _INHERITED_FILES],
        "namespaces": [_link(f"/proc/self/ns/{name}") for name in _NAMESPACES],
        "scheduling": [os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode(errors="surrogateescape")).hexdigest()


def connect(environment: Mapping[str, str], log_fd: int) -> socket.socket | None:
    """Ask the warm process for a zygote; its first message on the socket says whether it will do. None where there is no process."""
    hello = {"op": "start", "key": key(environment), "environment": dict(environment), "folder": os.getcwd()}
    return _ask(hello, [log_fd])


def offer(environment: Mapping[str, str], idle_s: float) -> dict[str, Any] | None:
    """What a zygote needs to know to leave such a process behind; None where it cannot."""
    path = socket_path()
    return None if path is None else {"path": str(path), "key": key(environment), "idle_s": idle_s, "since": time.time()}


def status() -> Message | None:
    """What the warm process says of itself: `pid`, `commands` at work, `idle_s`, `ends_after_s`, `rss_bytes`; None where there is none."""
    return _answer({"op": "status"})


def end() -> Message | None:
    """End it; what it said of itself before. Commands at work go on."""
    return _answer({"op": "end"})


def kill(connected: socket.socket) -> None:
    """End a process that accepts connections and answers none."""
    with contextlib.suppress(OSError):
        pid, user, _ = _peer(connected)
        if user == os.geteuid():
            os.kill(pid, signal.SIGKILL)


def _answer(request: Message) -> Message | None:
    connected = _ask(request, [])
    if connected is None:
        return None
    with contextlib.closing(Channel(connected)) as channel, contextlib.suppress(ProtocolError):
        return channel.receive(ANSWER_S)
    return None


def _ask(request: Message, fds: Sequence[int]) -> socket.socket | None:
    path = socket_path()
    if path is None:
        return None
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connected.settimeout(ANSWER_S)
        connected.connect(str(path))
        if _peer(connected)[1] != os.geteuid():
            raise PermissionError(path)
        data = encode(request)
        sent = socket.send_fds(connected, [data], list(fds)) if fds else 0
        connected.sendall(memoryview(data)[sent:])
    except (OSError, ValueError):
        connected.close()
        return None
    return connected


def _peer(connected: socket.socket) -> tuple[int, int, int]:
    """Process, user and group at the other end of a Unix socket, by the kernel's word."""
    pid, user, group = struct.unpack("iII", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII")))
    return pid, user, group


def _read(path: str) -> str:
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
    return ""


def _link(path: str) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(path)
    return ""
