"""Which files of the user's may a build read, and what is in them?"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from kbench.worker.build.request import BuildRequest

# A library of templates has some hundred headers; what lies beyond these is left to the full headers.
_MOST_FILES = 4096
_FILE_LIMIT_BYTES = 4 * 2**20

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include(?:_next)?[ \t]*(?:\"([^\"\n]+)\"|<([^>\n]+)>)", re.MULTILINE)


def included(request: BuildRequest) -> dict[str, str]:
    """The headers that the sources include from folders of the user's, and those that these include: path → text.

    A guess from the text, in which every `#if` counts as taken; what a compiler did read is in its
    list of dependencies. Paths are real ones.
    """
    flags = (*request.extra_cflags, *request.extra_cuda_cflags)
    folders = [*request.extra_include_paths, *(flag[2:] for flag in flags if flag.startswith("-I/"))]
    found: dict[str, str] = {}
    waiting = [(source.text, source.folder) for source in request.sources]
    while waiting and len(found) < _MOST_FILES:
        text, folder = waiting.pop()
        for quoted, angled in _INCLUDE.findall(text):
            places = [folder, *folders] if quoted and folder else folders
            path = _first_file(os.path.join(place, quoted or angled) for place in places)
            if path and path not in found:
                found[path] = _text(path)
                waiting.append((found[path], os.path.dirname(path)))
    return found


def listed(dependencies: Path) -> set[str]:
    """The real paths of the files in a compiler's list of dependencies; a compiler may have been made to write anything there."""
    try:
        text = dependencies.read_text(errors="replace")
    except OSError:
        return set()
    names = re.split(r"(?<!\\)\s+", text.replace("\\\n", " ").partition(":")[2].strip())
    return {os.path.realpath(name.replace("\\ ", " ")) for name in names if name}


def _first_file(paths: Iterable[str]) -> str:
    return next((os.path.realpath(path) for path in paths if _is_header(path)), "")


def _is_header(path: str) -> bool:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size <= _FILE_LIMIT_BYTES


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
