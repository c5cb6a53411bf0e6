"""Which files, ports, sockets and processes may this process still reach? Landlock, by its system calls.

The kernel holds the rules for this process and for all that it starts, and nobody can lift them.
Numbers and layouts are those of linux/landlock.h; a kernel newer than `NEWEST_ABI` is asked for no
more than that.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Iterable
from enum import IntFlag
from pathlib import Path

NEWEST_ABI = 7
# Without REFER (ABI 2, Linux 5.19) no file may move from one folder to another, not even inside the
# scratch folder: Triton and the compilers do that all the time.
OLDEST_ABI = 2
# ABI at which the kernel learned to hold each of these.
ABI_TRUNCATE = 3
_ABI_TCP = 4
_ABI_IOCTL_DEV = 5
ABI_SIGNALS = 6
_ABI_QUIET = 7

# The same on every architecture that kbench runs on.
_SYS_CREATE_RULESET, _SYS_ADD_RULE, _SYS_RESTRICT_SELF = 444, 445, 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1
_TCP_BIND_AND_CONNECT = 0b11
_SCOPE_SIGNALS = 0b10
_SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11
# A candidate that tries forbidden things in a loop must not flood the kernel's log.
_LOG_SAME_EXEC_OFF_AND_SUBDOMAINS_OFF = 0b101


class Access(IntFlag):
    """What may be done with a file, or beneath a folder."""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


READ = Access.EXECUTE | Access.READ_FILE | Access.READ_DIR
OWN = ~(Access.MAKE_CHAR | Access.MAKE_BLOCK | Access.IOCTL_DEV)
DEVICE = Access.READ_FILE | Access.READ_DIR | Access.WRITE_FILE | Access.IOCTL_DEV
# Who knows the name of a shared-memory object may use it, but nobody may look around for names.
SHARED_MEMORY = Access.READ_FILE | Access.WRITE_FILE | Access.MAKE_REG | Access.REMOVE_FILE | Access.TRUNCATE
_OF_A_FILE = Access.EXECUTE | Access.READ_FILE | Access.WRITE_FILE | Access.TRUNCATE | Access.IOCTL_DEV

_libc = ctypes.CDLL(None, use_errno=True)


class _RulesetAttr(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def abi() -> tuple[int, str]:
    """The version of Landlock that the kernel offers, or 0 and the reason."""
    version = _libc.syscall(_SYS_CREATE_RULESET, None, ctypes.c_size_t(0), _CREATE_RULESET_VERSION)
    if version > 0:
        return int(version), ""
    number = ctypes.get_errno()
    reasons = {
        errno.ENOSYS: "this kernel has no Landlock",
        errno.EOPNOTSUPP: "Landlock is off in this kernel",
    }
    return 0, reasons.get(number, f"Landlock is refused here ({os.strerror(number)})")


def restrict(grants: Iterable[tuple[Path, Access]], version: int) -> None:
    """Forbid this process all but `grants`, for good; needs no_new_privs.

    A path that is not there grants nothing. As far as `version` goes: TCP, abstract Unix sockets of
    others and signals to others are forbidden without exception.

    Raises:
        OSError: the kernel refused.
    """
    handled = _handled(version)
    attr = _RulesetAttr(
        fs=int(handled),
        net=_TCP_BIND_AND_CONNECT if version >= _ABI_TCP else 0,
        scoped=_SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS if version >= ABI_SIGNALS else 0,
    )
    ruleset = _create_ruleset(attr, version)
    try:
        for path, access in grants:
            _add_path(ruleset, path, access & handled)
        _enforce(ruleset, version)
    finally:
        os.close(ruleset)


def fence_signals() -> bool:
    """Keep the signals of this process and its descendants among themselves; needs no_new_privs.

    True where this kernel can.
    """
    version = min(abi()[0], NEWEST_ABI)
    if version < ABI_SIGNALS:
        return False
    try:
        # Every ruleset forbids moves between folders unless it grants them, even one that holds no files.
        ruleset = _create_ruleset(_RulesetAttr(fs=int(Access.REFER), scoped=_SCOPE_SIGNALS), version)
        try:
            _add_path(ruleset, Path("/"), Access.REFER)
            _enforce(ruleset, version)
        finally:
            os.close(ruleset)
    except OSError:
        return False
    return True


def _handled(version: int) -> Access:
    handled = ~Access(0)
    if version < ABI_TRUNCATE:
        handled &= ~Access.TRUNCATE
    if version < _ABI_IOCTL_DEV:
        handled &= ~Access.IOCTL_DEV
    return handled


def _create_ruleset(attr: _RulesetAttr, version: int) -> int:
    size = _RulesetAttr.net.offset
    if version >= _ABI_TCP:
        size = _RulesetAttr.scoped.offset
    if version >= ABI_SIGNALS:
        size = ctypes.sizeof(attr)
    return _checked(_libc.syscall(_SYS_CREATE_RULESET, ctypes.byref(attr), ctypes.c_size_t(size), 0))


def _enforce(ruleset: int, version: int) -> None:
    flags = _LOG_SAME_EXEC_OFF_AND_SUBDOMAINS_OFF if version >= _ABI_QUIET else 0
    _checked(_libc.syscall(_SYS_RESTRICT_SELF, ruleset, flags))


def _add_path(ruleset: int, path: Path, access: Access) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            access &= _OF_A_FILE
        rule = _PathBeneath(access=int(access), parent_fd=fd)
        _checked(_libc.syscall(_SYS_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0))
    finally:
        os.close(fd)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
