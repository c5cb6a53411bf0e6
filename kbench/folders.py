"""Folders that strangers write in: how much is in them, and how they go away whatever is in them."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Iterator

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK_BYTES = 512
# What a stranger's folder is made of.
OWN, GIVEN = "own", "given"


def make(path: str | os.PathLike[str]) -> None:
    """Make a private folder, with one where a stranger may do what he wants and one that he may only read.

    Raises:
        OSError: there is something already, or no room.
    """
    os.mkdir(path, stat.S_IRWXU)
    for name in (OWN, GIVEN):
        os.mkdir(os.path.join(path, name))


def remove(path: str | os.PathLike[str]) -> None:
    """Remove a folder with all that is in it, as far as the system lets us.

    A folder in a folder moves to the top before it is emptied: no depth overflows a stack or a path.
    No link is followed. Nobody may be writing there any more.
    """
    try:
        top = os.open(path, _FLAGS)
    except OSError:
        return
    try:
        names = _Names()
        # Until a round finds nothing that it can remove.
        while _empty(top, top, names):
            pass
    finally:
        os.close(top)
    with contextlib.suppress(OSError):
        os.rmdir(path)


class _Names:
    """Names at the top for folders from below; some may be taken by what a stranger made."""

    def __init__(self) -> None:
        self._number = 0

    def next(self) -> str:
        self._number += 1
        return f".gone-{os.getpid()}-{self._number}"


def _empty(folder: int, top: int, names: _Names) -> int:
    """Remove what is in a folder, or move it to the top; how many entries that were."""
    done = 0
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):
            if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                done += _remove_folder(name, folder, top, names)
            else:
                os.unlink(name, dir_fd=folder)
                done += 1
    return done


def _remove_folder(name: str, parent: int, top: int, names: _Names) -> int:
    # Whoever made it may have taken all rights away, and to move it takes them, too.
    os.chmod(name, stat.S_IRWXU, dir_fd=parent)
    if parent != top:
        os.rename(name, names.next(), src_dir_fd=parent, dst_dir_fd=top)
        return 1
    folder = os.open(name, _FLAGS, dir_fd=parent)
    try:
        done = _empty(folder, top, names)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=parent)
    return done + 1


def usage(path: str | os.PathLike[str], *, most_bytes: int, most_entries: int) -> tuple[int, int]:
    """Count the bytes on the disk and the entries below a folder; more than the most is not counted to its end."""
    n_bytes = n_entries = 0
    for size in _sizes(os.fspath(path)):
        n_bytes += size
        n_entries += 1
        if n_bytes > most_bytes or n_entries > most_entries:
            break
    return n_bytes, n_entries


def _sizes(path: str) -> Iterator[int]:
    waiting = [path]
    while waiting:
        try:
            entries = os.scandir(waiting.pop())
        except OSError:
            continue
        with entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError as error:
                    # Too deep to look at, and deeper than anything that is not there to hide something.
                    yield sys.maxsize if error.errno == errno.ENAMETOOLONG else 0
                    continue
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(entry.path)
                yield status.st_blocks * _BLOCK_BYTES
