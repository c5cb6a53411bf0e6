"""Who may work at the same time: many verify side by side, one times alone."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from kbench.config import lease_folder
from kbench.errors import MachineError

# How often a lease held by another kbench is asked for again.
_LEASE_POLL_S = 0.02
# Who waits longer is told for whom.
_TELL_AFTER_S = 1.0
# What is told of a process's command line.
_COMMAND_CHARACTERS = 80


class Gate:
    """Shared for building and verifying, exclusive for timing; who waits to time goes before who comes later.

    Timings on several GPUs go side by side, one on each; one on the CPU is alone.
    """

    def __init__(self) -> None:
        self._condition = asyncio.Condition()
        self._shared = 0
        self._timing: set[str] = set()
        self._waiting = 0

    @contextlib.asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Work beside others."""
        async with self._condition:
            await self._condition.wait_for(lambda: not self._timing and not self._waiting)
            self._shared += 1
        try:
            yield
        finally:
            async with self._condition:
                self._shared -= 1
                self._condition.notify_all()

    @contextlib.asynccontextmanager
    async def exclusive(self, device: str = "cpu") -> AsyncIterator[None]:
        """Have a device alone (`cpu`, `cuda:0`, …), and nobody building or verifying anywhere."""
        async with self._condition:
            self._waiting += 1
            try:
                await self._condition.wait_for(lambda: not self._shared and self._is_free(device))
                self._timing.add(device)
            finally:
                self._waiting -= 1
                # Who gave up waiting kept others from going on.
                self._condition.notify_all()
        try:
            yield
        finally:
            async with self._condition:
                self._timing.discard(device)
                self._condition.notify_all()

    def _is_free(self, device: str) -> bool:
        return not self._timing or (device != "cpu" and not self._timing & {"cpu", device})


class Lease:
    """A lock on a device across every kbench on this machine; the kernel frees a dead holder's at once.

    `device` is a GPU's UUID, or `cpu`. Two files: who wants the device alone holds the `turn`, which
    everybody passes through, so that a stream of those who share it cannot keep him waiting for ever.
    Who has to wait is told for whom by `tell`, the same only once.

    Raises:
        MachineError: the lock files cannot be opened.
    """

    def __init__(self, device: str, folder: Path | None = None, *, tell: Callable[[str], None] = lambda _: None) -> None:
        self._device = device
        self._folder = folder or lease_folder()
        self._tell = tell
        self._told = ""
        with self._lock_file("device"), self._lock_file("turn"):
            pass

    @contextlib.asynccontextmanager
    async def hold(self, *, alone: bool) -> AsyncIterator[None]:
        """Hold the device, shared or alone; waits as long as another kbench does.

        Each holder has descriptors of its own: of several that share one lock, the first to let go would free it for all.
        """
        with self._lock_file("device") as device:
            with self._lock_file("turn") as turn:
                telling = asyncio.get_running_loop().call_later(_TELL_AFTER_S, self._tell_wait, device, turn, alone)
                try:
                    for descriptor in (turn, device):
                        await _lock(descriptor, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
                finally:
                    telling.cancel()
            yield

    def _tell_wait(self, device: int, turn: int, alone: bool) -> None:
        """Tell who works on the device, or who is to time on it next."""
        holders = _holders(device, alone=alone) or _holders(turn, alone=alone)
        # Nobody is seen where his processes are hidden from this one.
        named = f" ({'; '.join(map(_process, holders))})" if holders else ""
        work = "its work" if not holders else "timing" if "WRITE" in holders.values() else "verifying"
        text = f"waiting for another kbench{named} to finish {work} on {'this CPU' if self._device == 'cpu' else f'GPU {self._device}'}"
        if text != self._told:
            self._told = text
            self._tell(text)

    @contextlib.contextmanager
    def _lock_file(self, name: str) -> Iterator[int]:
        try:
            descriptor = self._open(self._folder / f"{self._device}.{name}")
        except OSError as error:
            raise MachineError(
                f"cannot open the lease of `{self._device}` in {self._folder}: {(error.strerror or str(error)).lower()}",
                hint=f"`ls -l {self._folder}` shows whose it is; every user must be able to read it",
            ) from None
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _open(self, path: Path) -> int:
        # A lock needs no right to write, so that the file of one user does for all.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, flags)
        with contextlib.suppress(FileExistsError):
            self._folder.mkdir(mode=0o700, parents=True)
            # Past the umask.
            self._folder.chmod(0o1777)
        descriptor = os.open(path, flags | os.O_CREAT, 0o644)
        with contextlib.suppress(PermissionError):
            os.fchmod(descriptor, 0o644)
        return descriptor


async def _lock(descriptor: int, kind: int) -> None:
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            await asyncio.sleep(_LEASE_POLL_S)
        else:
            return


def _holders(descriptor: int, *, alone: bool) -> dict[int, str]:
    """The other processes whose lock on a file keeps this one from having it, each with the lock's kind, `READ` or `WRITE`."""
    try:
        file = _name_in_locks(descriptor)
        lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        return {}
    # As in `1: FLOCK  ADVISORY  WRITE 5756 fe:00:2146484 0 EOF`; who waits has an arrow before FLOCK.
    kinds = {int(line[4]): line[3] for line in lines if line[1] == "FLOCK" and line[5] == file}
    return {pid: kind for pid, kind in kinds.items() if pid != os.getpid() and (alone or kind == "WRITE")}


def _name_in_locks(descriptor: int) -> str:
    """What /proc/locks calls a file: the device of its mount, which `stat` does not give on every file system, and its inode."""
    status = Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in status)}
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    major, minor = next((mount[2].split(":") for mount in mounts if mount[0] == fields["mnt_id"]), ("0", "0"))
    return f"{int(major):02x}:{int(minor):02x}:{fields.get('ino', os.fstat(descriptor).st_ino)}"


def _process(pid: int) -> str:
    """A process and, where it may be read, its command line."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").strip()
    except OSError:
        command = ""
    return f"process {pid}: {command[:_COMMAND_CHARACTERS]}" if command else f"process {pid}"
