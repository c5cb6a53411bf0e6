"""How did a worker end, and is nothing of it left? A small trusted process above each worker.

The zygote forks the keeper, the keeper forks the worker, waits for it, watches how many processes
and how much memory there are below it, ends whatever is left in the end, and reports one line of
JSON. Orphans below the keeper become its children, daemons too; so when it has no child any more,
nothing is left.

To count and to end a fork bomb one by one is a race that a single process loses. Where the kernel
can fence the keeper's signals in, so that they reach its descendants alone, it sends one to
everybody: the kernel delivers that in one step in which nobody forks.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import select
import signal
import stat
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Self

from kbench import folders
from kbench.worker import confine, landlock, pids

# linux/prctl.h
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
# waitpid(2): children of every kind, also those that announce their end by no SIGCHLD.
_WALL = 0x40000000
# A look costs some 50 us; in this time a fork bomb makes some ten to hundred processes, and a memory
# hog fills some hundred MB.
_LOOK_S = 0.03
# So many processes are counted while they run; more than that, and again whenever there are twice as
# many, while all are stopped.
_CROWD = 16
# The disk and memory that no process has mapped fill more slowly.
_SLOW_LOOK_S = 0.1
# How long a round of killing waits for the dead, at first and at most.
_ROUND_S, _ROUND_MOST_S = 0.002, 0.05
# To give back 100 GB of memory takes seconds; a process that hangs in a driver may never end.
_END_LIMIT_S = 30.0
# An exact reading walks the page tables of every process: at most a tenth of the time goes there.
_EXACT_SHARE = 0.1
_PAGE_BYTES = os.sysconf("SC_PAGESIZE")
# Compilers and torch.compile leave some thousand files and less than a GB; kbench itself needs room for its results.
_DISK_BYTES = 8 * 2**30
_DISK_ENTRIES = 100_000
_DISK_SHARE = 0.5
# What is taken on the disk, or shared in memory, is looked for when so much of the limit may have been taken since the last look.
_DISK_STEP = 0.25
_SHARED_MEMORY = "/dev/shm"
# Some kernels are built without this list.
_OWN_CHILDREN = "/proc/thread-self/children"
_BLOCK_BYTES = 512

# Bound before a candidate, in a fork, can patch them.
_exit = os._exit


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a worker and all that it starts may use together; None is without limit.

    `scratch` is the folder that is theirs: it is made for them, `disk_bytes` and `disk_entries` bound it, and
    it goes when they have gone. `max_tasks` bounds processes and threads, where the kernel lets us; for root without a user of
    its own nothing else does.
    """

    memory_bytes: int | None = None
    max_processes: int = 256
    max_tasks: int | None = None
    scratch: str = ""
    disk_bytes: int = _DISK_BYTES
    disk_entries: int = _DISK_ENTRIES

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Read the limits from a message."""
        return cls(**fields)


def keep(run: Callable[[], None], *, status_fd: int, limits: Limits) -> NoReturn:
    """Run `run` in a process of its own until it ends, then end all that it left and report.

    For a process that was just forked: its other descriptors are closed. SIGTERM, the end of the
    process that forked it, and a `status_fd` that nobody reads any more end the worker.

    The report is a line with `exit` (code) or `signal` (number), the other one null; `cause`:
    `memory`, `processes` or `disk` beyond the limit, `killed` on demand, or empty where the worker ended by
    itself; `max_rss_bytes`, in which pages count once for each process that has them; and
    `leftovers`, the number of processes that had to be ended after the worker.
    """
    code = 70
    try:
        if limits.scratch:
            folders.make(limits.scratch)
        keeper = Keeper(status_fd=status_fd, limits=limits)
        report = keeper.keep(run)
        keeper.sweep()
        _report(status_fd, report)
        if limits.scratch:
            # Nobody waits for that, and nobody shall.
            os.close(status_fd)
            _be_ordinary()
            folders.remove(limits.scratch)
        code = 0
    except BaseException:  # noqa: BLE001 - whatever happens here must not return into the zygote
        traceback.print_exc()
    finally:
        _exit(code)


class Keeper:
    """The state of one keeper: its worker, what is known of the processes below it, and its limits."""

    def __init__(self, *, status_fd: int, limits: Limits) -> None:
        self._status_fd = status_fd
        self._limits = limits
        self._memory_bytes = limits.memory_bytes
        self._max_processes = limits.max_processes
        self._hangup = select.poll()
        self._hangup.register(status_fd, 0)
        self._worker = 0
        self._status: int | None = None
        self._fenced = False
        self._killed = 0
        self._alone = False
        self._pids: list[int] = []
        self._crowd = _CROWD
        self._stopped = False
        self._last_born = ""
        self._max_rss_bytes = 0
        self._next_exact_s = 0.0
        self._oom_kills = _oom_kills()
        self._group = pids.Group.make(limits.max_tasks) if limits.max_tasks is not None else None
        self._disk = _Disk(limits) if limits.scratch else None
        self._shared = _SharedMemory()
        self._unmapped_bytes = 0
        self._next_slow_s = 0.0

    def keep(self, run: Callable[[], None]) -> dict[str, object]:
        """Fork the worker, wait for its end or bring it about; the report."""
        self._settle()
        me = os.getpid()
        self._worker = os.fork()
        if self._worker == 0:
            os.close(self._status_fd)
            _work(run, me, self._group)
        cause = ""
        try:
            _close_all_but(self._status_fd)
            cause = self._watch()
        finally:
            # Without a keeper nobody would.
            leftovers = self._end_all()
        return self._conclude(cause, leftovers)

    def sweep(self) -> None:
        """Remove what the dead have left outside of their folder."""
        if self._group is not None:
            self._group.remove()
        _remove_shared_memory(confine.user_of(self._worker))

    def _settle(self) -> None:
        """Become the reaper of all below, in a session of its own, whom signals do not interrupt."""
        os.setsid()
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGCHLD, signal.SIGTERM})
        become_reaper()
        # Where the zygote has gone before this line, the status descriptor tells.
        end_with_parent(signal.SIGTERM)
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        with contextlib.suppress(OSError):
            # As root: a fork bomb takes the processor from whoever has no more right to it.
            os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
        self._fenced = landlock.fence_signals() and not _can_signal(os.getppid())

    def _watch(self) -> str:
        """Wait until the worker ends (empty), or there is a cause to end it."""
        next_look_s = 0.0
        while True:
            wait_s = max(next_look_s - time.monotonic(), 0.0)
            received = signal.sigtimedwait((signal.SIGCHLD, signal.SIGTERM), wait_s)
            self._reap()
            if self._status is not None:
                return ""
            if (received is not None and received.si_signo == signal.SIGTERM) or self._hangup.poll(0):
                return "killed"
            if time.monotonic() >= next_look_s:
                if excess := self._excess():
                    return excess
                next_look_s = time.monotonic() + _LOOK_S

    def _excess(self) -> str:
        """Which limit the worker and its descendants are beyond, if any; they are stopped then."""
        if (born := _last_born()) != self._last_born or born in ("", "0"):
            self._last_born = born
            self._find_processes()
        cause = self._exceeded()
        if self._stopped and not cause:
            self._stopped = False
            _send(-1, signal.SIGCONT)
        return cause

    def _find_processes(self) -> None:
        me = os.getpid()
        self._pids = list(itertools.islice(_descendants(me), self._crowd))
        if len(self._pids) == self._crowd:
            self._stop_all()
            self._pids = list(itertools.islice(_descendants(me), self._max_processes + 1))
            self._crowd = 2 * len(self._pids) + _CROWD

    def _exceeded(self) -> str:
        if len(self._pids) > self._max_processes:
            return "processes"
        if time.monotonic() >= self._next_slow_s:
            self._unmapped_bytes = self._shared.unmapped_bytes(self._pids, confine.user_of(self._worker), self._memory_bytes)
            if self._disk is not None and self._disk.is_exceeded(self._pids):
                return "disk"
            self._next_slow_s = time.monotonic() + _SLOW_LOOK_S
        rss_bytes = sum(map(_rss_bytes, self._pids)) + self._unmapped_bytes
        self._max_rss_bytes = max(self._max_rss_bytes, rss_bytes)
        if self._memory_bytes is None or rss_bytes <= self._memory_bytes or time.monotonic() < self._next_exact_s:
            return ""
        return "memory" if self._exact_bytes() + self._unmapped_bytes > self._memory_bytes else ""

    def _exact_bytes(self) -> int:
        """Count a page that several processes share, the judge's among them, as a part of one for each."""
        start_s = time.monotonic()
        # A process that forks or maps keeps its page tables locked.
        self._stop_all()
        exact_bytes = sum(map(_pss_bytes, self._pids))
        now_s = time.monotonic()
        self._next_exact_s = now_s + (now_s - start_s) / _EXACT_SHARE
        return exact_bytes

    def _stop_all(self) -> None:
        """Leave the processor to this process: a bomb takes it from whoever counts it."""
        if self._fenced:
            self._stopped = True
            _send(-1, signal.SIGSTOP)

    def _end_all(self) -> int:
        """Kill and reap until no process is left below; how many were killed beside the worker."""
        killed_before = self._killed
        deadline_s = time.monotonic() + _END_LIMIT_S
        round_s = _ROUND_S
        while not self._alone and time.monotonic() < deadline_s:
            if self._fenced:
                # To everybody inside the fence but this process.
                _send(-1, signal.SIGKILL)
                # None of them forks any more. To reap the dead the kernel may wait for whoever looks at them in /proc, and
                # that one for the processor: a second, if this process takes it from everybody.
                _be_ordinary()
            else:
                self._end_one_by_one()
            received = signal.sigtimedwait((signal.SIGCHLD,), round_s)
            # Whoever is dead tells; whoever takes long to die, on a loaded machine, needs the processor more than this process.
            round_s = _ROUND_S if received is not None else min(2 * round_s, _ROUND_MOST_S)
            self._reap()
        return self._killed - killed_before

    def _end_one_by_one(self) -> None:
        end_trees(children())

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | _WALL)
            except ChildProcessError:
                self._alone = True
                return
            if pid == 0:
                return
            if pid == self._worker and self._status is None:
                self._status = status
            elif os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
                # What ended by itself in the meantime was no leftover.
                self._killed += 1

    def _conclude(self, cause: str, leftovers: int) -> dict[str, object]:
        code = None if self._status is None else os.waitstatus_to_exitcode(self._status)
        number = -code if code is not None and code < 0 else None
        if not cause and number == signal.SIGKILL and _oom_kills() > self._oom_kills:
            cause = "memory"
        return {
            "exit": code if number is None else None,
            "signal": number,
            "cause": cause,
            "max_rss_bytes": self._max_rss_bytes,
            "leftovers": leftovers,
        }


def end_trees(roots: Iterable[int]) -> None:
    """Stop, then kill processes and all below them, each with its group, before they can do anything themselves."""
    roots = list(roots)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        groups = {os.getpgrp()}
        for root in roots:
            for pid in (root, *_descendants(root)):
                # No member forks while its group is signalled. A group other than the caller's has only
                # descendants of it: a process can join none in another session.
                with contextlib.suppress(OSError):
                    group = os.getpgid(pid)
                    if group not in groups:
                        groups.add(group)
                        _send(-group, number)
                # Ids are given in order: this one is not another process's before all others were used up.
                _send(pid, number)


def _be_ordinary() -> None:
    """Take the processor from nobody any more."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def become_reaper() -> None:
    """Have orphans of this process's descendants become its children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(number: int) -> None:
    """Have the kernel send this signal to this process when its parent ends; 0 for none."""
    _prctl(_PR_SET_PDEATHSIG, number)


def children() -> list[int]:
    """The processes that have this one for their parent."""
    return _lister()(os.getpid())


class _Disk:
    """How much of the disk the worker's own folder takes, looked at only when the disk has got fuller."""

    def __init__(self, limits: Limits) -> None:
        self._path = limits.scratch
        free_bytes, self._free_entries = self._free()
        self._free_bytes = free_bytes
        self._limit_bytes = min(limits.disk_bytes, int(free_bytes * _DISK_SHARE))
        self._limit_entries = limits.disk_entries

    def is_exceeded(self, processes: Iterable[int]) -> bool:
        """Whether the folder, and what `processes` have open without a name, are beyond the limit."""
        free_bytes, free_entries = self._free()
        # Others give back room, too.
        self._free_bytes = max(self._free_bytes, free_bytes)
        self._free_entries = max(self._free_entries, free_entries)
        is_fuller = self._free_bytes - free_bytes > _DISK_STEP * self._limit_bytes
        if not is_fuller and self._free_entries - free_entries <= _DISK_STEP * self._limit_entries:
            return False
        self._free_bytes, self._free_entries = free_bytes, free_entries
        n_bytes, n_entries = folders.usage(self._path, most_bytes=self._limit_bytes, most_entries=self._limit_entries)
        n_bytes += sum(size for device, size in _nameless_files(processes) if device == self._device())
        return n_bytes > self._limit_bytes or n_entries > self._limit_entries

    def _free(self) -> tuple[int, int]:
        try:
            system = os.statvfs(self._path)
        except OSError:
            return 0, 0
        return system.f_bfree * system.f_frsize, system.f_ffree

    def _device(self) -> int:
        try:
            return os.stat(self._path).st_dev
        except OSError:
            return -1


class _SharedMemory:
    """Memory that is in no process's page tables: written to a memfd, or to a file in /dev/shm."""

    def __init__(self) -> None:
        self._least_bytes = _shared_memory_bytes()
        self._held_bytes = 0
        self._devices = _memory_devices()

    def unmapped_bytes(self, processes: Iterable[int], user: int | None, limit_bytes: int | None) -> int:
        """About so much `processes` have; looked for when the machine's shared memory has grown."""
        if limit_bytes is None:
            return 0
        now_bytes = _shared_memory_bytes()
        self._least_bytes = min(self._least_bytes, now_bytes)
        if not self._held_bytes and now_bytes - self._least_bytes <= _DISK_STEP * limit_bytes:
            return 0
        self._least_bytes = now_bytes
        held_bytes = sum(size for device, size in _nameless_files(processes) if device in self._devices)
        held_bytes += sum(status.st_blocks * _BLOCK_BYTES for _, status in _shared_memory_of(user))
        self._held_bytes = held_bytes
        return max(0, held_bytes - sum(map(_mapped_shared_bytes, processes)))


def _memory_devices() -> set[int]:
    """The devices of files that lie in memory."""
    descriptor = os.memfd_create("kbench")
    try:
        devices = {os.fstat(descriptor).st_dev}
    finally:
        os.close(descriptor)
    with contextlib.suppress(OSError):
        devices.add(os.stat(_SHARED_MEMORY).st_dev)
    return devices


def _nameless_files(processes: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield device and bytes of each plain file that some of the processes have open and that has no name."""
    seen = set()
    for pid in processes:
        folder = f"/proc/{pid}/fd"
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            with contextlib.suppress(OSError):
                status = os.stat(f"{folder}/{name}")
                if stat.S_ISREG(status.st_mode) and not status.st_nlink and (key := (status.st_dev, status.st_ino)) not in seen:
                    seen.add(key)
                    yield status.st_dev, status.st_blocks * _BLOCK_BYTES


def _shared_memory_of(user: int | None) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files in shared memory of a user that is a worker's alone; other users' may be anybody's."""
    if user is None:
        return
    with contextlib.suppress(OSError), os.scandir(_SHARED_MEMORY) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if status.st_uid == user:
                    yield entry.path, status


def _remove_shared_memory(user: int | None) -> None:
    for path, _ in list(_shared_memory_of(user)):
        with contextlib.suppress(OSError):
            os.unlink(path)


def _work(run: Callable[[], None], keeper: int, group: pids.Group | None) -> NoReturn:
    """Be the worker: a session of its own, so that no signal to its group is one to the keeper."""
    code = 1
    try:
        os.setsid()
        end_with_parent(signal.SIGKILL)
        if os.getppid() != keeper:
            _exit(1)
        if group is not None:
            group.enter()
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        run()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001 - a worker may raise anything, and its trace is its last word
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
        with contextlib.suppress(BaseException):
            sys.stderr.flush()
        _exit(code & 0xFF)


def _report(status_fd: int, report: dict[str, object]) -> None:
    # Nobody may be left to read it.
    with contextlib.suppress(OSError):
        os.write(status_fd, json.dumps(report).encode() + b"\n")


def _close_all_but(kept: int) -> None:
    """Close all but the standard streams: the other ends wait for the worker's end, not the keeper's."""
    for name in os.listdir("/proc/self/fd"):
        if (fd := int(name)) > 2 and fd != kept:
            with contextlib.suppress(OSError):
                os.close(fd)


def _descendants(root: int) -> Iterator[int]:
    """Yield every process below `root`, parents first."""
    children_of = _lister()
    seen = {root}
    queue = [root]
    while queue:
        for pid in children_of(queue.pop()):
            if pid not in seen:
                seen.add(pid)
                queue.append(pid)
                yield pid


def _lister() -> Callable[[int], list[int]]:
    """How to find the children of a process on this kernel."""
    return _children if os.path.exists(_OWN_CHILDREN) else _children_by_scan()


def _children(pid: int) -> list[int]:
    """The children of all threads of a process; none where it has gone."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    return [int(child) for thread in threads for child in _read(f"/proc/{pid}/task/{thread}/children").split()]


def _children_by_scan() -> Callable[[int], list[int]]:
    """Find children by the parents of all processes, on kernels that do not list the children."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            # The name before the last bracket may hold anything; after it come the state and the parent.
            _, _, rest = _read(f"/proc/{name}/stat").rpartition(")")
            if fields := rest.split():
                children.setdefault(int(fields[1]), []).append(int(name))
    return lambda pid: children.get(pid, [])


def _last_born() -> str:
    """The id given to the newest process or thread: while it stays, nothing was forked anywhere."""
    return _read("/proc/loadavg").rpartition(" ")[2].strip()


def _rss_bytes(pid: int) -> int:
    fields = _read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * _PAGE_BYTES if fields else 0


def _pss_bytes(pid: int) -> int:
    """Resident memory with shared pages in proportion; all of it where the kernel does not say."""
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return _rss_bytes(pid)


def _mapped_shared_bytes(pid: int) -> int:
    """The part of `_rss_bytes` that is shared memory."""
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith("RssShmem:"):
            return int(line.split()[1]) * 1024
    return 0


def _shared_memory_bytes() -> int:
    """Shared memory of the whole machine, mapped or not."""
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("Shmem:"):
            return int(line.split()[1]) * 1024
    return 0


def _oom_kills() -> int:
    """How many processes the kernel has ended for want of memory, on the whole machine."""
    for line in _read("/proc/vmstat").splitlines():
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return 0


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _can_signal(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return False
    return True


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl({option}) is refused")
