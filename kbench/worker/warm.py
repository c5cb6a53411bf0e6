"""The process that a zygote may leave behind: torch is imported, and it forks a zygote for each later command.

It runs nothing of a command's, holds no GPU and no lock of a device, and ends itself when nobody has come
for a while, when anything that it has loaded has changed on the disk, and when a command comes that would
have started a process with another environment (`kbench.warm.key`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from kbench.protocol import Channel, Message, ProtocolError
from kbench.worker import confine

# A command says at once what it wants; who does not is none.
_HELLO_S = 1.0
# The process before this one was told to end.
_LOCK_TRIES, _LOCK_PAUSE_S = 40, 0.05
_STREAMS = 3

Begin = Callable[[Channel], None]
Stamp = tuple[int, ...] | tuple[str, ...] | None


def leave_behind(offer: Mapping[str, Any], begin: Begin) -> None:
    """Fork a process of its own session that nobody waits for; `begin` turns a fork of it into a command's zygote.

    `offer` names the socket (`path`), the `key` of commands that may come, `since` when files must not have
    changed (seconds since the epoch), and after how long without one it ends (`idle_s`).
    """
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            _detach()
            _Server(offer, begin).serve()
    finally:
        os._exit(0)


def _detach() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(_STREAMS):
        os.dup2(null, fd)
    os.closerange(_STREAMS, 65536)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class _Server:
    def __init__(self, offer: Mapping[str, Any], begin: Begin) -> None:
        self._path = Path(offer["path"])
        self._key = str(offer["key"])
        self._idle_s = float(offer["idle_s"])
        self._begin = begin
        self._loaded = _stamps()
        self._sound = not any(stamp and isinstance(stamp[0], int) and stamp[0] > offer["since"] * 1e9 for stamp in self._loaded.values())
        self._sessions: set[int] = set()
        self._served = 0
        self._last_s = time.monotonic()
        self._over = False
        # A command's folder may be removed, or its disk unmounted.
        os.chdir("/")

    def serve(self) -> None:
        """Serve commands until there are none any more."""
        lock = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if not self._sound or not _lock(lock):
            return
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._path.unlink(missing_ok=True)
        mask = os.umask(0o077)
        listener.bind(str(self._path))
        os.umask(mask)
        listener.listen(16)
        wake, wake_write = os.pipe()
        for fd in (wake, wake_write):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._end())
        signal.set_wakeup_fd(wake_write)
        try:
            while not self._over and (self._sessions or self._left_s() > 0):
                ready, _, _ = select.select([listener.fileno(), wake], [], [], None if self._sessions else max(self._left_s(), 0.0))
                if wake in ready:
                    os.read(wake, 4096)
                self._reap()
                if listener.fileno() in ready:
                    self._meet(listener)
        finally:
            self._path.unlink(missing_ok=True)

    def _left_s(self) -> float:
        return self._last_s + self._idle_s - time.monotonic()

    def _end(self) -> None:
        self._over = True

    def _reap(self) -> None:
        while self._sessions:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._sessions.discard(pid)
            self._last_s = time.monotonic()

    def _meet(self, listener: socket.socket) -> None:
        connected, _ = listener.accept()
        channel = Channel(connected, accept_fds=True)
        try:
            if _peer_user(connected) == os.geteuid():
                connected.settimeout(_HELLO_S)
                self._answer(channel, connected, channel.receive(_HELLO_S))
        except (OSError, ProtocolError, KeyError, TypeError, ValueError):
            pass
        finally:
            for fd in channel.take_fds():
                os.close(fd)
            channel.close()

    def _answer(self, channel: Channel, connected: socket.socket, request: Message) -> None:
        if request["op"] == "start":
            self._start(channel, connected, request)
            return
        idle_s = 0.0 if self._sessions else time.monotonic() - self._last_s
        told = {"pid": os.getpid(), "commands": len(self._sessions), "served": self._served, "idle_s": idle_s, "ends_after_s": self._idle_s}
        self._over = request["op"] == "end"
        if self._over:
            # The name is free before anyone hears of it.
            self._path.unlink(missing_ok=True)
        channel.send(told)

    def _start(self, channel: Channel, connected: socket.socket, request: Message) -> None:
        doubt = "it was started from another environment" if request["key"] != self._key else _changed(self._loaded)
        if doubt:
            self._over = True
            self._path.unlink(missing_ok=True)
            channel.send({"event": "refused", "why": doubt})
            return
        self._served += 1
        self._last_s = time.monotonic()
        pid = os.fork()
        if pid:
            self._sessions.add(pid)
            return
        try:
            self._become_zygote(connected, channel.take_fds(), request)
        finally:
            os._exit(0)

    def _become_zygote(self, connected: socket.socket, fds: list[int], request: Message) -> None:
        """Turn this fork into what the command itself would have started."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        (log_fd,) = fds
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        control_fd = os.dup2(connected.detach(), _STREAMS)
        os.closerange(_STREAMS + 1, 65536)
        # Its own, whatever the key overlooks.
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        confine.prepare(afresh=True)
        control = socket.socket(fileno=control_fd)
        control.setblocking(True)
        self._begin(Channel(control, accept_fds=True))


def _peer_user(connected: socket.socket) -> int:
    """The user at the other end, by the kernel's word."""
    return int(struct.unpack("iII", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII")))[1])


def _lock(descriptor: int) -> bool:
    """Whether this is the only such process of the user."""
    for _ in range(_LOCK_TRIES):
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(_LOCK_PAUSE_S)
    return False


# What is loaded, and whether an import now would load the same.


def _stamps() -> dict[str, Stamp]:
    return {path: _stamp(path) for path in _loaded_files()}


def _changed(stamps: Mapping[str, Stamp]) -> str:
    """Say what is different on the disk, if anything is."""
    return next((f"{path} has changed" for path, stamp in stamps.items() if _stamp(path) != stamp), "")


def _loaded_files() -> Iterable[str]:
    """Every module and library in this process, and every folder in which an import would find others."""
    found = dict.fromkeys(str(file) for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None)))
    for line in Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines():
        name = line.partition("/")
        if name[1]:
            found["/" + name[2]] = None
    found[str(Path(sys.prefix) / "pyvenv.cfg")] = None
    for folder in sys.path:
        found[folder or "."] = None
        found.update(dict.fromkeys(map(str, Path(folder or ".").glob("*.pth"))))
    return [os.path.abspath(path) for path in found]


def _stamp(path: str) -> Stamp:
    """When a file was last changed, which one it is, and how long; of a folder, what an import could find in it."""
    try:
        found = os.stat(path)
        if os.path.isdir(path):
            return tuple(sorted(name for name in os.listdir(path) if _importable(path, name)))
    except OSError:
        return None
    return (found.st_ctime_ns, found.st_dev, found.st_ino, found.st_size)


def _importable(folder: str, name: str) -> bool:
    return name.endswith((".py", ".so", ".pth", ".zip")) or (name.isidentifier() and os.path.isdir(os.path.join(folder, name)))
