"""C++: how is one source compiled, and what does g++ or clang say of it?"""

from __future__ import annotations

import re
from pathlib import Path

from kbench.records import Kernel
from kbench.worker.build.language import Unit

# Measured with g++ 12 and torch 2.14: the binding code of an extension with either set of headers.
LIGHT_MEMORY_BYTES = 600 * 2**20
FULL_MEMORY_BYTES = 1600 * 2**20

_ERROR = re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<text>.*)$", re.MULTILINE)


def command(unit: Unit, *, light: Path | None) -> list[str]:
    """The compiler's call: torch's flags, the light folder (if any) before every include path."""
    first = ["-I", str(light)] if light else []
    quoted = ["-iquote", unit.source.folder] if unit.source.folder else []
    prefix = ["-include", str(unit.prefix)] if unit.prefix else []
    outputs = ["-MMD", "-MF", str(unit.dependencies), "-c", str(unit.path), "-o", str(unit.object)]
    return [*unit.commands.cxx, *prefix, *first, *quoted, *unit.commands.cflags, *outputs]


def first_error(log: str) -> str:
    """The first error as `file:line: error: text`, or nothing."""
    found = _ERROR.search(log)
    return f"{found['file']}:{found['line']}: error: {found['text']}" if found else ""


def resources(log: str) -> list[Kernel]:
    """C++ has no kernels."""
    del log
    return []


def without_resources(log: str) -> str:
    """The log as it is."""
    return log
