"""Who may work at the same time: many verify side by side, one times alone."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from kbench.errors import MachineError

# How often a lease held by another kbench is asked for again.
_LEASE_POLL_S = 0.02


class Gate:
    """Shared for building and verifying, exclusive for timing; who waits to time goes before who comes later."""

    def __init__(self) -> None:
        self._condition = asyncio.Condition()
        self._shared = 0
        self._exclusive = False
        self._waiting = 0

    @contextlib.asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Work beside others."""
        async with self._condition:
            await self._condition.wait_for(lambda: not self._exclusive and not self._waiting)
            self._shared += 1
        try:
            yield
        finally:
            async with self._condition:
                self._shared -= 1
                self._condition.notify_all()

    @contextlib.asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Work alone."""
        async with self._condition:
            self._waiting += 1
            try:
                await self._condition.wait_for(lambda: not self._exclusive and not self._shared)
                self._exclusive = True
            finally:
                self._waiting -= 1
        try:
            yield
        finally:
            async with self._condition:
                self._exclusive = False
                self._condition.notify_all()


class Lease:
    """A lock on a device across every kbench on this machine; the kernel frees a dead holder's at once.

    `device` is a GPU's UUID, or `cpu`.
    """

    def __init__(self, device: str) -> None:
        folder = Path(tempfile.gettempdir()) / "kbench-leases"
        try:
            folder.mkdir(mode=0o1777, exist_ok=True)
            self._fd = os.open(folder / f"{device}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise MachineError(f"cannot open the lease of `{device}` in {folder}: {error}", hint="set TMPDIR to a folder you can write") from None

    @contextlib.asynccontextmanager
    async def hold(self, *, alone: bool) -> AsyncIterator[None]:
        """Hold the device, shared or alone; waits as long as another kbench does."""
        kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
        while True:
            try:
                fcntl.flock(self._fd, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_LEASE_POLL_S)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the lock file."""
        os.close(self._fd)
