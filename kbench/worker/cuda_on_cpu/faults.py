"""What did a kernel do wrong, and where: the runtime's message as data."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# How every message begins that the runtime throws.
PREFIX = "KBENCH_CUDA_FAULT "
# The runtime's reasons. What a process says of itself is a claim, so no other word is taken from it.
REASONS = frozenset(
    {
        "cuda:global-bounds",
        "cuda:shared-bounds",
        "cuda:array-bounds",
        "cuda:uninitialized",
        "cuda:shared-race",
        "cuda:global-race",
        "cuda:barrier",
        "cuda:shuffle",
        "cuda:misaligned",
        "cuda:launch",
        "cuda:assert",
        "cuda:trap",
        "cuda:hang",
    }
)
_DETAIL_LIMIT_CHARACTERS = 500
# The name that a build gives to the candidate's own string: `cuda_sources[0]`.
_INLINE = re.compile(r"(cuda_sources|cpp_sources)\[(\d+)\]$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault of one kernel; `file` is what the build called the source."""

    reason: str
    file: str
    line: int
    kernel: str
    detail: str

    def __str__(self) -> str:
        """`file:line: kernel: what happened`."""
        return f"{self.file}:{self.line}: `{self.kernel}`: {self.detail}"


def parse(message: str) -> Fault | None:
    """Find the runtime's report in the text of an exception, or nothing."""
    _, prefix, rest = message.partition(PREFIX)
    if not prefix:
        return None
    try:
        data, _ = json.JSONDecoder().raw_decode(rest)
        fault = Fault(
            reason=str(data["reason"]),
            file=str(data["file"])[:_DETAIL_LIMIT_CHARACTERS],
            line=int(data["line"]),
            kernel=str(data["kernel"])[:_DETAIL_LIMIT_CHARACTERS],
            detail=str(data["detail"])[:_DETAIL_LIMIT_CHARACTERS],
        )
    except (ValueError, KeyError, TypeError):
        return None
    return fault if fault.reason in REASONS else None


def line_in_candidate(candidate: str, sources: Sequence[str], file: str, line: int, *, near: str = "") -> int | None:
    """The line of the candidate's file where line `line` of the inline source `file` is written, if it is found.

    `file` is what a `#line` in one of `sources` calls a string (`cuda_sources[1]`), which must hold `near`.
    """
    if _INLINE.search(file) is None:
        return None
    mark = f'#line 1 "{file}"\n'
    # The string ends where the next one begins, or what is added behind it.
    texts = [text.partition(mark)[2].partition("\n#line 1 ")[0] for text in sources if mark in text]
    source = next((text for text in texts if near.partition("<")[0] in text), None)
    if source is None:
        return None
    for text, first_line in _strings(candidate):
        start = source.find(text)
        if start < 0:
            continue
        before = source.count("\n", 0, start)
        if before < line <= before + text.count("\n") + 1:
            return first_line + line - 1 - before
    return None


def _strings(candidate: str) -> Iterator[tuple[str, int]]:
    """The strings of some length in a Python file, longest first, with the lines where they begin."""
    try:
        tree = ast.parse(candidate)
    except (SyntaxError, ValueError):
        return
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    for node in sorted(found, key=lambda node: -len(str(node.value))):
        if "\n" in str(node.value):
            yield str(node.value), node.lineno
