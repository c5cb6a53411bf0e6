"""How much processor time does a process take, with all that it started, while nobody asked it for anything?"""

from __future__ import annotations

import time
from pathlib import Path

# A process and its keeper.
_ALONE = 2
# It is quiet what takes no more than this share of one processor for so long.
_LOOK_S, _QUIET_SHARE = 0.05, 0.05


def cpu_seconds(pid: int) -> float:
    """Processor time so far of a process and of all that it started, those that it left to its keeper, too; 0 for what has gone."""
    return sum(map(_cpu_seconds, _tree(_parent(pid))[1:]))


def wait_until_quiet(pid: int, *, limit_s: float) -> None:
    """Wait until what a process started beside itself takes no more processor time, but not for ever; not at all where there is nothing."""
    started = time.monotonic()
    while len(_tree(_parent(pid))) > _ALONE and time.monotonic() - started < limit_s:
        before_s, looked = cpu_seconds(pid), time.monotonic()
        time.sleep(_LOOK_S)
        if cpu_seconds(pid) - before_s <= _QUIET_SHARE * (time.monotonic() - looked):
            return


def _parent(pid: int) -> int:
    """The process that a worker's orphans are left to; none where there is no such process."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _cpu_seconds(pid: int) -> float:
    try:
        # The clock of another process: linux/posix-timers.h, MAKE_PROCESS_CPUCLOCK with CPUCLOCK_SCHED.
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def _tree(root: int) -> list[int]:
    found = [root]
    for pid in found:
        try:
            tasks = list(Path(f"/proc/{pid}/task").iterdir())
            found += [int(child) for task in tasks for child in (task / "children").read_text().split()]
        except OSError:
            continue
    return found
