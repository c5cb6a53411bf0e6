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
                    with contextlib.suppress(OSError):
                        if "pids" in (own / "cgroup.subtree_control").read_text().split():
                            yield own
