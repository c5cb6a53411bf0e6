"""What did compute-sanitizer find in a candidate's own kernels? Its XML records, taken apart strictly.

Format seen of Compute Sanitizer 2025.3 (CUDA 13.0): `scripts/record_sanitizer.py` records what tests read.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
# With short host stacks a record is 3 kB, and the tools stop after 100.
LIMIT_BYTES = 64 * 2**20
_ROOT = "ComputeSanitizerOutput"
# Who is between a kernel's stub and the driver: the runtime, wherever it lies.
_RUNTIME = re.compile(r"/lib(cuda|cudart|sanitizer|nvrtc|TreeLauncher|Interceptor)[^/]*\.so[^/]*$")
# Kernels that these launch are a library's: torch's folder, NVIDIA's packages and toolkit, and the system's.
_LIBRARY = re.compile(r"/torch/lib/|-packages/nvidia/|/usr/local/cuda|/lib(torch|c10|cublas|cudnn|cufft|cusparse|cusolver|curand|nccl)[^/]*\.so")
# The toolkit's own headers, whose functions are inlined into kernels.
_HEADER = re.compile(r"/(include|targets)/[^:]*\.(hpp|h|cuh|inl)$")
_TEXT_LIMIT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One kind of fault in one place: `place` is `file:line`, empty where there is no line information.

    `kernel` names the function that it is in, too, where that is one that the kernel calls. `count` is the
    number of records that say the same, `other` the second place of a race.
    """

    text: str
    kernel: str
    place: str = ""
    other: str = ""
    count: int = 1

    def describe(self) -> str:
        """Say it in one line."""
        where = f" at {self.place}" if self.place else ""
        against = f" against {self.other}" if self.other else ""
        times = f" ({self.count} records)" if self.count > 1 else ""
        return f"{self.text} in {self.kernel}{where}{against}{times}"


def parse(data: bytes) -> list[Finding]:
    """Read the records of one run; those about kernels of torch and other libraries are left out.

    Raises:
        ValueError: this is no such file, or an unreasonably long one.
    """
    if len(data) > LIMIT_BYTES:
        raise ValueError(f"a report of {len(data)} bytes; at most {LIMIT_BYTES} are read")
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        raise ValueError("a report with declarations, which compute-sanitizer does not write")
    try:
        root = ElementTree.fromstring(data)  # noqa: S314 - without declarations there is nothing to expand
    except (ElementTree.ParseError, ValueError) as error:
        raise ValueError(f"no XML: {error}") from None
    if root.tag != _ROOT:
        raise ValueError(f"no report of compute-sanitizer: it begins with <{root.tag[:40]}>")
    counted = Counter(finding for record in root.findall("record") for finding in _of_record(record))
    return [Finding(text=found.text, kernel=found.kernel, place=found.place, other=found.other, count=count) for found, count in counted.most_common()]


def _of_record(record: ElementTree.Element) -> Iterator[Finding]:
    """The finding of one record; none for what is about no kernel, or about one of a library's."""
    wheres = list(record.iter("where"))
    if not wheres or not _is_own(record, wheres):
        return
    accesses = [what for name in ("source", "destination", "thread0", "thread1") for what in record.findall(f"what/{name}")]
    text = _text(record, "what/text") or _text(record, "kind") or "a fault"
    if len(accesses) > 1:
        first, second = accesses[:2]
        text = f"{text} of {_access(first)} and {_access(second)}"
        yield Finding(text=text, kernel=_kernel(second) or _kernel(first), place=_place(first), other=_place(second))
    else:
        function, launched = _kernel(wheres[0]), _launched(record)
        kernel = f"{launched} ({function})" if launched and launched != function else function
        yield Finding(text=text, kernel=kernel, place=_own_place(record) or _place(wheres[0]))


def _is_own(record: ElementTree.Element, wheres: list[ElementTree.Element]) -> bool:
    """Whether the candidate's code launched the kernel; without a stack, whether it has lines, as no library's kernel has."""
    modules = [module.text or "" for module in record.findall("hostStack/frame/module")]
    launched_by = next((module for module in modules if not _RUNTIME.search(module)), "")
    if launched_by:
        return not _LIBRARY.search(launched_by)
    return any(where.find("path") is not None for where in wheres)


def _launched(record: ElementTree.Element) -> str:
    """The kernel that was launched, by the frame that called its stub; empty where the stack has none."""
    names = [_text(frame, "func") for frame in record.findall("hostStack/frame")]
    stub = next((index for index, name in enumerate(names) if "__device_stub__" in name), len(names))
    return next((name.partition("(")[0] for name in names[stub + 1 : stub + 2]), "")


def _own_place(record: ElementTree.Element) -> str:
    """The innermost line of the candidate's where the fault is in a function of the toolkit's headers."""
    frames = [element for element in record.findall("deviceStack/frame") if not _HEADER.search(_text(element, "path"))]
    return next((place for place in map(_place, frames) if place), "") if _HEADER.search(_text(record, "where/path")) else ""


def _access(element: ElementTree.Element) -> str:
    word = _text(element, "direction") or _text(element, "access")
    return word.lower() if word else "an access"


def _kernel(element: ElementTree.Element) -> str:
    return _text(element, "where/func") or _text(element, "func") or "a kernel"


def _place(element: ElementTree.Element) -> str:
    where = element if element.tag in ("where", "frame") else element.find("where")
    if where is None:
        return ""
    path, line = _text(where, "path"), _text(where, "line")
    return f"{PurePosixPath(path).name}:{int(line)}" if path and line.isascii() and line.isdigit() else ""


def _text(element: ElementTree.Element, path: str) -> str:
    return (element.findtext(path) or "").strip()[:_TEXT_LIMIT]
