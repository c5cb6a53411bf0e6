"""Which system calls may this process still make? A seccomp filter for what Landlock does not hold.

Landlock knows files, TCP, abstract sockets and signals. Here go the other networks, sockets with a
name in a folder, the ways into another process or its clock share, and changes of owner, mode and times.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

# linux/seccomp.h
_SET_MODE_FILTER = 1
# Otherwise some kernels turn speculative-store-bypass on for the process: its kernels would be timed slow.
_FLAG_SPEC_ALLOW = 1 << 2
_RETURN_ALLOW = 0x7FFF0000
_RETURN_ERRNO = 0x00050000
_RETURN_KILL = 0x80000000
# struct seccomp_data: number, architecture, instruction pointer, six arguments of 64 bits (low half first).
_OFFSET_NUMBER, _OFFSET_ARCHITECTURE, _OFFSET_ARGUMENTS = 0, 4, 16
# linux/bpf_common.h: load a word, compare with a constant, mask, return.
_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
# Calls of the x32 kind have this bit; their numbers would pass by every rule below.
_X32_BIT = 0x40000000


@dataclass(frozen=True, slots=True)
class _Architecture:
    audit: int
    column: int
    seccomp: int
    has_x32: bool = False


# linux/audit.h; `column` is the place in the table below.
_ARCHITECTURES = {
    "x86_64": _Architecture(audit=0xC000003E, column=0, seccomp=317, has_x32=True),
    "aarch64": _Architecture(audit=0xC00000B7, column=1, seccomp=277),
}

# Name: number on x86_64 and on aarch64, None where there is none.
# Source: asm/unistd_64.h, asm-generic/unistd.h.
_Numbers = tuple[int | None, int | None]

# No tensor needs them, whatever their arguments.
_REFUSED: dict[str, _Numbers] = {
    # The memory and files of another process.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "migrate_pages": (256, 238),
    # The owner of a file, which Landlock leaves to whoever owns it.
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    # Memory and queues that outlive the process.
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    # Namespaces and mounts.
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "fsconfig": (431, 431),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    # Large parts of the kernel, some with ways around this filter.
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "syslog": (103, 116),
    "fanotify_init": (300, 262),
    "open_by_handle_at": (304, 265),
    # Landlock lets anybody watch any folder for the names that come and go there.
    "inotify_add_watch": (254, 27),
}

# The times of a file, which Landlock leaves to its owner: to keep them when copying a file does nothing and is no error.
_TIMES: dict[str, _Numbers] = {
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
}

# Access lists are modes by another name. "Not supported" is what a file system without them says.
_ATTRIBUTES: dict[str, _Numbers] = {
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
}
# Calls of kernels yet to come; libraries fall back where a kernel does not know one.
_FIRST_UNKNOWN = 470

# What their arguments decide about; see `_rules`.
_JUDGED: dict[str, _Numbers] = {
    "socket": (41, 198),
    "socketpair": (53, 199),
    "connect": (42, 203),
    "clone": (56, 220),
    "clone3": (435, 435),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "prlimit64": (302, 261),
    "move_pages": (279, 239),
    "sched_setaffinity": (203, 122),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    "fcntl": (72, 25),
    "ioctl": (16, 29),
    "open": (2, None),
    "openat": (257, 56),
    "openat2": (437, 437),
    "truncate": (76, 45),
}
_ALL = {**_REFUSED, **_ATTRIBUTES, **_TIMES, **_JUDGED}

# linux/sched.h: every CLONE_NEW… that fits into the flags of clone.
_NEW_NAMESPACES = 0x7E020000
# The owner keeps all rights, others may not write, no set-id bit: a harmless mode.
_MODE_MASK, _HARMLESS_MODE = 0o7722, 0o700
_PRIO_USER, _IOPRIO_WHO_USER = 2, 3
_F_SETOWN, _F_SETOWN_EX = 8, 15
# Who may read a file could hold up those who write it, or watch a folder.
_F_SETLEASE, _F_NOTIFY = 1024, 1026
# linux/fs.h: the flags of a file, which belong to its owner (FS_IOC_SETFLAGS, its 32-bit kind, FS_IOC_FSSETXATTR);
# asm/ioctls.h: keys typed into the terminal (TIOCSTI, TIOCLINUX).
_FILE_FLAGS = (0x40086602, 0x40046602, 0x401C5820)
_TERMINAL_KEYS = (0x5412, 0x541C)
_TYPE_MASK = 0xF


@dataclass(frozen=True, slots=True)
class _Test:
    """Holds where `argument & mask` is none of `allowed` (or is one of `refused`)."""

    argument: int
    allowed: tuple[int, ...] = ()
    refused: tuple[int, ...] = ()
    mask: int = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class _Rule:
    """Answers `error` where one of `tests` holds, or always where there is none; 0 pretends success."""

    call: str
    error: int
    tests: tuple[_Test, ...] = ()


def forbid(*, hold_signals: bool, hold_truncation: bool) -> None:
    """Put the filter on this process, for good; needs no_new_privs.

    `hold_signals` and `hold_truncation` are for kernels whose Landlock cannot: signals then reach
    this process alone, not even its own children, and no file is cut by its name.

    Raises:
        OSError: the kernel, or this architecture, has no such filter.
    """
    architecture = _ARCHITECTURES.get(platform.machine())
    if architecture is None:
        raise OSError(errno.ENOSYS, f"no system call table for {platform.machine()}")
    rules = list(_rules(os.getpid()))
    rules.append(_fcntl_rule(hold_signals=hold_signals))
    if hold_signals:
        rules += _signal_rules(os.getpid())
    if hold_truncation:
        rules += _truncation_rules()
    _install(_assemble(rules, architecture), architecture)


def _rules(pid: int) -> Iterator[_Rule]:
    yield from (_Rule(name, errno.EPERM) for name in _REFUSED)
    yield from (_Rule(name, errno.EOPNOTSUPP) for name in _ATTRIBUTES)
    yield from (_Rule(name, 0) for name in _TIMES)
    # Unix sockets with a connection only: datagrams can be sent to any socket by its name, and
    # connect() to the socket of a daemon. CUDA itself binds and listens, on one that it never reads.
    local_only = (_Test(0, allowed=(socket.AF_UNIX,)),)
    connected = (_Test(1, mask=_TYPE_MASK, allowed=(socket.SOCK_STREAM, socket.SOCK_SEQPACKET)),)
    yield _Rule("socket", errno.EACCES, local_only + connected)
    yield _Rule("socketpair", errno.EACCES, connected)
    yield _Rule("connect", errno.ECONNREFUSED)
    yield _Rule("clone", errno.EPERM, (_Test(0, mask=_NEW_NAMESPACES, allowed=(0,)),))
    # Its flags lie in memory, where no filter looks; libraries fall back to clone.
    yield _Rule("clone3", errno.ENOSYS)
    # A linker may make its output executable; to copy a file with its mode does nothing and is no error.
    for name, argument in (("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("fchmodat2", 2)):
        yield _Rule(name, 0, (_Test(argument, mask=_MODE_MASK, allowed=(_HARMLESS_MODE,)),))
    yield _Rule("ioctl", errno.EPERM, (_Test(1, refused=_FILE_FLAGS + _TERMINAL_KEYS),))
    # A CPU limit on the keeper would kill it, and a mask or a priority on the reference would slow it.
    yield _Rule("prlimit64", errno.EPERM, (_Test(0, allowed=(0, pid)),))
    for name in ("move_pages", "sched_setaffinity", "sched_setparam", "sched_setscheduler", "sched_setattr"):
        yield _Rule(name, errno.EPERM, (_Test(0, allowed=(0, pid)),))
    yield _Rule("setpriority", errno.EPERM, (_Test(0, refused=(_PRIO_USER,)), _Test(1, allowed=(0, pid))))
    yield _Rule("ioprio_set", errno.EPERM, (_Test(0, refused=(_IOPRIO_WHO_USER,)), _Test(1, allowed=(0, pid))))


def _signal_rules(pid: int) -> Iterator[_Rule]:
    for name in ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
        yield _Rule(name, errno.EPERM, (_Test(0, allowed=(pid,)),))
    yield _Rule("pidfd_send_signal", errno.EPERM)


def _fcntl_rule(*, hold_signals: bool) -> _Rule:
    owners = (_F_SETOWN, _F_SETOWN_EX) if hold_signals else ()
    return _Rule("fcntl", errno.EPERM, (_Test(1, refused=(_F_SETLEASE, _F_NOTIFY, *owners)),))


def _truncation_rules() -> Iterator[_Rule]:
    yield _Rule("truncate", errno.EACCES)
    # To open for reading and cut at once needs no right to write in an old Landlock.
    cut_only = _Test(0, mask=os.O_TRUNC | os.O_ACCMODE, refused=(os.O_TRUNC | os.O_RDONLY,))
    yield _Rule("open", errno.EACCES, (replace(cut_only, argument=1),))
    yield _Rule("openat", errno.EACCES, (replace(cut_only, argument=2),))
    yield _Rule("openat2", errno.ENOSYS)


_Instruction = tuple[int, int, int, int]


def _assemble(rules: Iterable[_Rule], architecture: _Architecture) -> list[_Instruction]:
    """Write the filter: foreign calls kill, each rule in turn answers its error, all else passes."""
    program: list[_Instruction] = [
        (_LOAD, 0, 0, _OFFSET_ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, architecture.audit),
        (_RETURN, 0, 0, _RETURN_KILL),
        (_LOAD, 0, 0, _OFFSET_NUMBER),
    ]
    if architecture.has_x32:
        program += [(_JUMP_GREATER_EQUAL, 0, 1, _X32_BIT), (_RETURN, 0, 0, _RETURN_KILL)]
    program += [(_JUMP_GREATER_EQUAL, 0, 1, _FIRST_UNKNOWN), (_RETURN, 0, 0, _RETURN_ERRNO | errno.ENOSYS)]
    for rule in rules:
        number = _ALL[rule.call][architecture.column]
        if number is not None:
            program += _assemble_rule(rule, number)
    return [*program, (_RETURN, 0, 0, _RETURN_ALLOW)]


def _assemble_rule(rule: _Rule, number: int) -> list[_Instruction]:
    answer = (_RETURN, 0, 0, _RETURN_ERRNO | rule.error)
    block = [instruction for test in rule.tests for instruction in _assemble_test(test, answer)]
    # After its tests a call is allowed: no other rule is about it.
    block += [(_RETURN, 0, 0, _RETURN_ALLOW)] if rule.tests else [answer]
    return [(_JUMP_EQUAL, 0, len(block), number), *block]


def _assemble_test(test: _Test, answer: _Instruction) -> list[_Instruction]:
    """Compare one argument; where the test holds, `answer`, otherwise go on behind it."""
    values = test.allowed or test.refused
    code: list[_Instruction] = [(_LOAD, 0, 0, _OFFSET_ARGUMENTS + 8 * test.argument), (_AND, 0, 0, test.mask)]
    for index, value in enumerate(values):
        left = len(values) - index - 1
        # A match jumps behind the answer (allowed) or onto it (refused); the last miss does the opposite.
        match = left + 1 if test.allowed else left
        miss = 0 if left or test.allowed else 1
        code.append((_JUMP_EQUAL, match, miss, value))
    return [*code, answer]


class _Filter(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("jt", ctypes.c_uint8),
        ("jf", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("filter", ctypes.POINTER(_Filter)))


def _install(program: list[_Instruction], architecture: _Architecture) -> None:
    instructions = (_Filter * len(program))(*(_Filter(*instruction) for instruction in program))
    argument = ctypes.byref(_Program(len(program), instructions))
    libc = ctypes.CDLL(None, use_errno=True)
    # A kernel that does not know the flag refuses it, and does not need it.
    for flags in (_FLAG_SPEC_ALLOW, 0):
        if libc.syscall(architecture.seccomp, _SET_MODE_FILTER, flags, argument) == 0:
            return
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))
