"""Where are built objects kept, by the content that made them? Standard library only.

    <root>/builds/<key>/           entry.json (written before the folder takes its name) and the object
    <root>/builds/locks/<key>      held by who builds the key; the kernel frees it when the holder dies
    <root>/builds/work/<key>/<any> the folder of a build under way, swept by the next holder of the lock
    <root>/builds/wanted/<key>     an empty file: somebody had a use for such an entry

An entry appears whole or not at all: it is made under another name and renamed. `kbench.doctor` shows and
empties the cache.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from kbench.worker.build.request import BuildResult

# Thirty thousand ordinary extensions, or four hundred with a precompiled header each.
DEFAULT_LIMIT_BYTES = 10 * 2**30
# After going over the limit, stop below it, so that not every build has to remove something.
_KEEP_FRACTION = 0.9
# No build takes this long: what is left in `work` after it belongs to nobody.
_ABANDONED_S = 86_400
_MARKER = "entry.json"
_LOCKS, _WORK, _WANTED = "locks", "work", "wanted"
# The end of the name of a folder that somebody is removing, or was when killed.
_GONE = ".gone"
_HEADER_LIMIT_BYTES = 64 * 2**20
# A marker is a log of 32 kB and at most some thousand headers.
_MARKER_LIMIT_BYTES = 2**24


class Cache:
    """The build cache in one folder; any number of processes may share it."""

    def __init__(self, root: Path, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        """Name the folder; nothing is created before the first build."""
        # Compilers run in a folder of their own, so a path that counts from this one would lead them astray.
        self.root = root.absolute() / "builds"
        self.limit_bytes = limit_bytes

    def lookup(self, key: str) -> BuildResult | None:
        """Find the finished build of a key, good or failed.

        None where there is none that can be trusted: a partial or damaged entry, or one that saw a
        header of the user's that has changed since.
        """
        folder = self.root / key
        try:
            marker = _read_marker(folder / _MARKER)
            result = BuildResult.from_json(marker["result"])
            if result.key != key or not _same_files(marker["headers"]):
                return None
            if result.ok:
                path = folder / Path(result.path).name
                if _sha256(path) != marker["sha256"]:
                    return None
                result = replace(result, path=str(path))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        with suppress(OSError):
            os.utime(folder / _MARKER)
        return replace(result, cached=True)

    def artifact(self, key: str) -> Path | None:
        """The object of a finished good build, unread: for what only the builder itself uses."""
        try:
            marker = _read_marker(self.root / key / _MARKER)
            result = BuildResult.from_json(marker["result"])
            path = self.root / key / Path(result.path).name
            if not result.ok or path.stat().st_size != marker["bytes"]:
                return None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        os.utime(self.root / key / _MARKER)
        return path

    def was_wanted(self, key: str) -> bool:
        """Whether this was asked of the same key before."""
        mark = self.root / _WANTED / key
        if mark.exists():
            return True
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
        return False

    def store(self, result: BuildResult, headers: Mapping[str, str], artifact: Path | None) -> BuildResult:
        """Keep a finished build under `result.key`; the caller holds the lock of that key.

        `headers` maps the user's headers that the build read to the sha256 of what it read.
        `artifact` may have been written by a hostile compiler run: only a plain file is taken.
        """
        entry = self.root / result.key
        # Beside the folder of the build, which a compiler might still write to.
        fresh = Path(tempfile.mkdtemp(prefix="entry.", dir=self._work(result.key)))
        fresh.chmod(0o755)
        sha256 = ""
        if artifact is not None:
            sha256 = _copy_plain_file(artifact, fresh / artifact.name)
            result = replace(result, path=str(entry / artifact.name))
        n_bytes = (fresh / artifact.name).stat().st_size if artifact is not None else 0
        marker = {"result": result.to_json(), "sha256": sha256, "bytes": n_bytes, "headers": dict(headers)}
        (fresh / _MARKER).write_text(json.dumps(marker))
        _remove(entry)
        fresh.rename(entry)
        self.evict(keep=result.key)
        return result

    def _work(self, key: str) -> Path:
        return self.root / _WORK / key

    @contextmanager
    def lock(self, key: str, *, wait: bool = True) -> Iterator[Path]:
        """Wait until nobody else builds this key; enter with an empty folder to build in.

        No two builds have a folder of the same name: a compiler that outlived its builder writes into
        nobody's.

        Raises:
            BlockingIOError: somebody else builds it, and `wait` is False.
        """
        work = self._work(key)
        with _locked(self.root / _LOCKS / key, wait=wait):
            _remove(work)
            work.mkdir(parents=True)
            try:
                yield Path(tempfile.mkdtemp(prefix="build.", dir=work))
            finally:
                _remove(work)

    def evict(self, *, keep: str = "") -> None:
        """Remove what was not used for longest until the cache is within its limit; never `keep`."""
        sizes = {folder: _size_bytes(folder) for folder in self._entries()}
        total = sum(sizes.values())
        if total <= self.limit_bytes:
            return
        self._sweep_work()
        for folder in sorted(sizes, key=_last_use_s):
            if total <= self.limit_bytes * _KEEP_FRACTION:
                return
            if folder.name != keep:
                _remove(folder)
                total -= sizes[folder]

    def _entries(self) -> list[Path]:
        try:
            return [folder for folder in self.root.iterdir() if folder.name not in {_LOCKS, _WORK, _WANTED} and folder.suffix != _GONE]
        except FileNotFoundError:
            return []

    def _sweep_work(self) -> None:
        """Remove what killed builds left; who holds the lock of a folder is still at work."""
        for folder in self.root.glob(f"*{_GONE}"):
            shutil.rmtree(folder, ignore_errors=True)
        with suppress(FileNotFoundError):
            for folder in (self.root / _WORK).iterdir():
                with suppress(OSError), _locked(self.root / _LOCKS / folder.name, wait=False):
                    if time.time() - folder.stat().st_mtime >= _ABANDONED_S:
                        _remove(folder)
                        (self.root / _LOCKS / folder.name).unlink(missing_ok=True)


@contextmanager
def _locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            # Whoever held it may have removed the file: then others lock a new one.
            if _is_still(path, fd):
                yield
                return
        finally:
            os.close(fd)


def _is_still(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except FileNotFoundError:
        return False


def _read_marker(path: Path) -> dict[str, object]:
    with path.open("rb") as file:
        marker = json.loads(file.read(_MARKER_LIMIT_BYTES))
    if not isinstance(marker, dict):
        raise TypeError(path)
    return marker


def fingerprints(paths: Iterable[str]) -> dict[str, str]:
    """The sha256 of each header; empty for one that cannot be read, or that is no plain file of a header's size."""
    result = {}
    for path in paths:
        try:
            status = os.stat(path)
            is_plain = stat.S_ISREG(status.st_mode) and status.st_size <= _HEADER_LIMIT_BYTES
            result[path] = _sha256(Path(path)) if is_plain else ""
        except OSError:
            result[path] = ""
    return result


def _same_files(headers: object) -> bool:
    # What could not be read then may be anything now.
    return isinstance(headers, dict) and all(headers.values()) and fingerprints(headers) == headers


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copy_plain_file(source: Path, target: Path) -> str:
    fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"{source} is not a plain file")
        with target.open("wb") as copy:
            shutil.copyfileobj(file, copy)
    target.chmod(0o755)
    return _sha256(target)


def _last_use_s(folder: Path) -> float:
    times = [0.0]
    with suppress(OSError):
        for path in folder.iterdir():
            status = path.stat()
            times += [status.st_atime, status.st_mtime]
    return max(times)


def _size_bytes(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_size
    return total


def _remove(folder: Path) -> None:
    """Remove a folder as others see it at once: it loses its name first, then its content."""
    doomed = folder.with_name(f"{folder.name}.{secrets.token_hex(8)}{_GONE}")
    try:
        folder.rename(doomed)
    except FileNotFoundError:
        return
    shutil.rmtree(doomed, ignore_errors=True)
