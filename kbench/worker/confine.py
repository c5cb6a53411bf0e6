"""What may a candidate touch? Its scratch folder, and nothing that is not its own.

Called in a process that was just forked, before anything of the candidate's is imported. No
privilege is needed, and none is left afterwards: Landlock holds files and signals, a system call
filter holds the network and other processes, limits hold the size of what it writes. What the
kernel lacks is said, not hidden: see `Confinement`.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import glob
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbench.errors import InternalError
from kbench.worker import landlock, seccomp

# Programs, libraries, compilers and their settings. A task's files are in none of these, see `_around`.
_SYSTEM = (
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/bin",
    "/sbin",
    "/opt",
    "/nix/store",
    "/gnu/store",
    "/proc",
    "/sys",
)
_SYSTEM_VARIABLES = (
    "CUDA_HOME",
    "CUDA_PATH",
    "LD_LIBRARY_PATH",
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "LIBRARY_PATH",
    "COMPILER_PATH",
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_GPU_DEVICES = ("/dev/nvidia*",)
# POSIX semaphores live here, and with them every pool of processes (torch.compile has one); CUDA's IPC, too.
_SHARED_MEMORY = "/dev/shm"

# Where libraries keep what they make, each in its own folder of the scratch folder.
_CACHES = {
    "HOME": "",
    "TMPDIR": "tmp",
    "XDG_CACHE_HOME": "cache",
    "TORCH_EXTENSIONS_DIR": "torch_extensions",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "CUDA_CACHE_PATH": "cuda",
}

# A stack without a limit lets runaway recursion take all memory before it crashes; the usual limit is 8 MiB.
_STACK_BYTES = 64 * 2**20
# A CUDA process has some dozen files open, a compiler fewer.
_OPEN_FILES = 4096

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_KEEPCAPS = 8
_PR_SET_SECUREBITS = 28
_SECBIT_NO_SETUID_FIXUP = 1 << 2
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
# CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH.
_FILE_CAPABILITIES = (1, 2)
# Far beyond any user that a system gives out; a number for each process id.
_FIRST_USER = 0x4B400000
_USERS = 2**22
# Where a container has the usual 65536 users: between those of people and those of the system.
_FEW_FIRST_USER = 0x8000
_FEW_USERS = 2**14
_CAPABILITY_VERSION_3 = 0x20080522


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What one worker may use besides the interpreter, its packages and the system's programs.

    `scratch` becomes its working folder, its home and the place of all caches; like `writable`, it
    may do there what it wants. `hidden` is carved out of whatever else is readable, unless it is
    itself in `readable`, `writable` or the interpreter's. `libraries` are readable but for what is
    hidden, if they are no home or above one and nothing private. `data_bytes` bounds private memory,
    which a CUDA process reserves without measure: leave it None there. `max_threads` counts from
    what the user runs already.
    """

    scratch: Path
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    libraries: tuple[Path, ...] = ()
    gpu: bool = False
    file_bytes: int = 4 * 2**30
    data_bytes: int | None = None
    max_threads: int = 512 + 8 * (os.cpu_count() or 1)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Policy:
        """Read a policy from the parent's message, whose keys are the fields; paths are text."""
        paths = {name: tuple(map(Path, fields[name])) for name in ("readable", "writable", "hidden", "libraries") if name in fields}
        return cls(**{**fields, **paths, "scratch": Path(fields["scratch"])})


@dataclass(frozen=True, slots=True)
class Confinement:
    """What is in force, and what is missing for a sandbox (nothing, if `lacking` is empty)."""

    held: tuple[str, ...]
    lacking: tuple[str, ...] = ()

    @property
    def is_sandbox(self) -> bool:
        """Nothing is missing."""
        return not self.lacking

    def __str__(self) -> str:
        """The text for a record: `landlock:7+seccomp`, or `unsandboxed (why)`."""
        return "+".join(self.held) if self.is_sandbox else f"unsandboxed ({'; '.join(self.lacking)})"


def prepare(*, afresh: bool = False) -> None:
    """Look up before a fork what every worker may read; `afresh` forgets what was found before."""
    if afresh:
        _installed.cache_clear()
    _installed()


def confine(policy: Policy, *, newest_abi: int = landlock.NEWEST_ABI, before_exec: bool = False) -> Confinement:
    """Give up, for good, all that `policy` does not grant; say what is in force.

    `newest_abi` is the most that is asked of Landlock. With `before_exec` this process is to become another
    program at once, in which its other threads are no more.

    Raises:
        InternalError: this process has more than one thread; the others would stay free.
    """
    if (n_threads := len(os.listdir("/proc/self/task"))) != 1 and not before_exec:
        raise InternalError(f"a process of {n_threads} threads cannot be confined")
    # Paths are looked up before the limits on looking them up.
    grants = list(_grants(policy))
    _move_into(policy.scratch)
    user = _user_of_its_own(policy)
    _limit(policy, user)
    _drop_privileges(user, policy.scratch)
    version, lacking = _restrict_files(grants, newest_abi)
    held = [f"landlock:{version}"] if version else []
    try:
        seccomp.forbid(hold_signals=version < landlock.ABI_SIGNALS, hold_truncation=0 < version < landlock.ABI_TRUNCATE)
        held.append("seccomp")
    except OSError as error:
        lacking.append(f"no system call filter: {error.strerror}")
    return Confinement(tuple(held), tuple(lacking))


def filter_calls() -> None:
    """Put the system call filter alone on a process that is trusted and will be timed beside one that is not.

    For a worker below a keeper, which has set no_new_privs.

    A system call takes longer in a process that has a filter, whatever it is: the same product of two small matrices on
    two threads took 2.5 % longer there. What the kernel lacks, candidates are without, too.
    """
    with contextlib.suppress(OSError):
        seccomp.forbid(hold_signals=False, hold_truncation=False)


def _restrict_files(grants: Iterable[tuple[Path, landlock.Access]], newest_abi: int) -> tuple[int, list[str]]:
    """Put Landlock on; the version in force (0: none) and what is lacking."""
    version, reason = landlock.abi()
    version = min(version, newest_abi)
    if reason:
        return 0, [reason]
    if version < landlock.OLDEST_ABI:
        return 0, [f"this kernel has Landlock {version}, at least {landlock.OLDEST_ABI} is needed"]
    try:
        landlock.restrict(grants, version)
    except OSError as error:
        return 0, [f"Landlock is refused here: {error.strerror}"]
    return version, []


def _grants(policy: Policy) -> Iterator[tuple[Path, landlock.Access]]:
    hidden = frozenset(path.resolve() for path in policy.hidden)
    above = frozenset(parent for path in hidden for parent in (path, *path.parents))
    libraries = [path.resolve() for path in policy.libraries if _is_library(path)]
    for folder in (*_installed(), *(path for path in libraries if hidden.isdisjoint((path, *path.parents)))):
        for path in _around(folder, hidden, above):
            yield path, landlock.READ
    for path in policy.readable:
        yield path, landlock.READ
    for path in (policy.scratch, *policy.writable):
        yield path, landlock.OWN
    patterns = _DEVICES + _GPU_DEVICES if policy.gpu else _DEVICES
    for path in (Path(name) for pattern in patterns for name in glob.glob(pattern)):
        yield path, landlock.DEVICE
    yield Path(_SHARED_MEMORY), landlock.SHARED_MEMORY
    if policy.gpu:
        # CUDA names its threads there, and gives up where it may not.
        yield Path(f"/proc/{os.getpid()}"), landlock.OWN


def is_installed(path: Path) -> bool:
    """Whether a file is one that every worker may read."""
    return not set(_installed()).isdisjoint(path.resolve().parents)


@functools.cache
def _installed() -> tuple[Path, ...]:
    """Programs, libraries and packages, resolved: the same for every worker of one zygote."""
    return tuple(dict.fromkeys(folder.resolve() for folder in (*_system_folders(), *_interpreter_folders())))


def _system_folders() -> Iterator[Path]:
    yield from map(Path, _SYSTEM)
    for variable in _SYSTEM_VARIABLES:
        yield from (Path(name) for name in os.environ.get(variable, "").split(":") if _is_narrow(name))
    # For root, /etc/shadow is a file like any other: only what everyone may read.
    with os.scandir("/etc") as entries:
        yield from (Path(entry.path) for entry in entries if _is_public(entry))


def _interpreter_folders() -> Iterator[Path]:
    """The interpreter, the folders of installed packages, torch wherever it lies, and kbench itself."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    yield from (Path(prefix) for prefix in prefixes if _is_narrow(prefix))
    # An entry of the search path may be a project's own folder, with its references in it.
    yield from (Path(name) for name in sys.path if _is_narrow(name) and _holds_packages(Path(name)))
    for name in ("torch", "triton"):
        yield from map(Path, getattr(sys.modules.get(name), "__path__", ()))
    yield Path(__file__).resolve().parents[1]


def _is_public(entry: os.DirEntry[str]) -> bool:
    try:
        return bool(entry.stat().st_mode & 0o004)
    except OSError:
        return False


def _is_narrow(name: str) -> bool:
    """An absolute folder that is neither the root nor the user's home nor above it."""
    home = Path(os.path.expanduser("~"))
    return os.path.isabs(name) and Path(name).resolve() not in (Path("/"), home, *home.parents)


def _is_library(path: Path) -> bool:
    """What a stranger may name as a folder of headers: not `~/.ssh`, and nothing around it."""
    return _is_narrow(str(path)) and not any(part.startswith(".") for part in path.resolve().parts)


def _holds_packages(path: Path) -> bool:
    return path.name in ("site-packages", "dist-packages") or any(path.glob("*.dist-info"))


def _around(path: Path, hidden: frozenset[Path], above: frozenset[Path]) -> Iterator[Path]:
    """`path` itself, or all that is in it but for what is hidden; `above` is that, and every folder that it lies in."""
    if path not in above:
        yield path
    elif path not in hidden and path.is_dir():
        for entry in path.iterdir():
            # A link would grant what it points to; that has, or has not, a rule of its own.
            if not entry.is_symlink():
                yield from _around(entry, hidden, above)


def _move_into(scratch: Path) -> None:
    for variable, name in _CACHES.items():
        folder = scratch / name
        folder.mkdir(parents=True, exist_ok=True)
        os.environ[variable] = str(folder)
    tempfile.tempdir = None
    os.chdir(scratch)


def user_of(pid: int) -> int | None:
    """The user that a confined worker of this process id becomes where root can give it one of its own; else None."""
    if os.geteuid() != 0:
        return None
    for first, count in ((_FIRST_USER, _USERS), (_FEW_FIRST_USER, _FEW_USERS)):
        if _has_users(first, count):
            return first + pid % count
    return None


def _has_users(first: int, count: int) -> bool:
    """Whether this user namespace knows all of these; see user_namespaces(7) for the file."""
    try:
        lines = Path("/proc/self/uid_map").read_text().splitlines()
    except OSError:
        return True
    ranges = [tuple(map(int, line.split())) for line in lines]
    return any(inside <= first and first + count <= inside + length for inside, _, length in ranges)


def _user_of_its_own(policy: Policy) -> int | None:
    """A user that only this process and what it starts is, where root can give it one.

    No limit on processes binds root: a fork bomb of root's takes the machine. A GPU's driver shares
    memory between processes of one user only, so there root stays root: see `keeper.Limits`.
    """
    return None if policy.gpu else user_of(os.getpid())


def _limit(policy: Policy, user: int | None) -> None:
    # 1 and not 0: at 0 a kernel that pipes cores to a program still does, a GB for each crash. Source: core(5).
    _lower(resource.RLIMIT_CORE, 1)
    _lower(resource.RLIMIT_FSIZE, policy.file_bytes)
    _lower(resource.RLIMIT_NOFILE, _OPEN_FILES)
    _lower(resource.RLIMIT_STACK, _STACK_BYTES)
    if policy.data_bytes is not None:
        _lower(resource.RLIMIT_DATA, policy.data_bytes)
    # The kernel counts all threads of the user (and none for root).
    _lower(resource.RLIMIT_NPROC, (_threads_of_this_user() if user is None else 0) + policy.max_threads)
    # If the machine runs out of memory, this process is the one to go.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _lower(limit: int, value: int) -> None:
    soft, hard = (value if old == resource.RLIM_INFINITY else min(old, value) for old in resource.getrlimit(limit))
    resource.setrlimit(limit, (soft, hard))


def _threads_of_this_user() -> int:
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                status = os.stat(f"/proc/{name}/task")
            except OSError:
                continue
            # Each thread is a folder, and adds a link to its parent beside the two of its own.
            count += max(status.st_nlink - 2, 1) if status.st_uid == os.geteuid() else 0
    return count


def _drop_privileges(user: int | None, scratch: Path) -> None:
    """Empty all capability sets, and have no program give them back.

    Who becomes another user keeps the right to read and write what root may: Landlock says which files.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    kept = 0
    if user is not None:
        for path in (scratch, *scratch.rglob("*")):
            os.chown(path, user, -1, follow_symlinks=False)
        # Otherwise access(2) would answer without those rights, and a compiler believes it.
        libc.prctl(_PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP, 0, 0, 0)
        libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
        os.setresuid(user, user, user)
        kept = sum(1 << capability for capability in _FILE_CAPABILITIES)
        os.environ["USER"] = os.environ["LOGNAME"] = "kbench"
        # A change of user takes a process its own /proc/self, and has it outlive its parent.
        libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    # Effective, permitted and inheritable, twice 32 of each.
    libc.capset(header, (ctypes.c_uint32 * 6)(kept, kept, kept, 0, 0, 0))
    for capability in _FILE_CAPABILITIES if kept else ():
        libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, capability, 0, 0)
