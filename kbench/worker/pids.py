"""How many tasks may there be below a worker? A control group, where this process may make one.

Root without a user of its own is bound by no limit on processes; by this it is. What cannot be had is
left out: the keeper's watch remains.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Self

_MOUNT = Path("/sys/fs/cgroup")
# Files of a group of version 2 that are `max`, or empty, where it is without limits. Source: cgroup-v2.rst of the kernel.
_LIMITS = ("memory.max", "memory.high", "memory.swap.max", "cpu.max", "pids.max", "io.max", "cpuset.cpus", "cpuset.mems")


class Group:
    """A control group of one worker and all that it starts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def make(cls, max_tasks: int) -> Self | None:
        """Make one that holds so many processes and threads; None where that is not to be had."""
        for parent in _parents():
            folder = parent / f"kbench-{os.getpid()}"
            with contextlib.suppress(OSError):
                folder.mkdir(exist_ok=True)
                (folder / "pids.max").write_text(str(max_tasks))
                return cls(folder)
        return None

    def enter(self) -> None:
        """Put this process into it."""
        with contextlib.suppress(OSError):
            (self._folder / "cgroup.procs").write_text("0")

    def remove(self) -> None:
        """Remove it; nobody is in it any more."""
        with contextlib.suppress(OSError):
            self._folder.rmdir()


def _parents() -> Iterator[Path]:
    """Yield the groups of this process in which one with a number of tasks can be made."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "pids" in controllers.split(","):
                yield _MOUNT / "pids" / path.lstrip("/")
            elif not controllers:
                # Version 2: a group that has processes of its own hands out no controllers, but for the first of all.
                for mount in (_MOUNT, _MOUNT / "unified"):
                    own = mount / path.lstrip("/")
                    if _hands_out_tasks(own):
                        yield own
                    elif own != mount and _hands_out_tasks(own.parent) and not _is_limited(own):
                        # Beside its own group a worker is as free as in it.
                        yield own.parent


def _hands_out_tasks(group: Path) -> bool:
    return "pids" in _read(group / "cgroup.subtree_control").split()


def _is_limited(group: Path) -> bool:
    """Whether something is held in this group that would not be beside it."""
    limits = {name: _read(group / name).split()[:1] for name in _LIMITS}
    return any(limit not in ([], ["max"]) for limit in limits.values())


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
