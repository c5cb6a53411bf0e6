"""CUDA: how is one source compiled, and what do nvcc and ptxas say of it?"""

from __future__ import annotations

import ctypes
import re
import sys
from contextlib import suppress
from pathlib import Path

from kbench.records import Kernel
from kbench.worker.build import cpp, nvcc_steps
from kbench.worker.build.headers import NVCC_FOLDER
from kbench.worker.build.language import Unit

# Measured with nvcc 13.0 and torch 2.14: the same kernel with either set of headers.
LIGHT_MEMORY_BYTES = 1000 * 2**20
FULL_MEMORY_BYTES = 3200 * 2**20

_ERROR = re.compile(r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (?P<text>.*)$", re.MULTILINE)
_PTXAS_ERROR = re.compile(r"^ptxas .*?(?:fatal|error)\s*: (?P<text>.*)$", re.MULTILINE)
_PTXAS = re.compile(
    r"Compiling entry function '(?P<kernel>[^']+)' for '(?P<architecture>\w+)'\n"
    r"(?:.*\n)??.*?(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads\n"
    r".*Used (?P<registers>\d+) registers(?P<rest>.*)"
)
_SHARED = re.compile(r"(\d+) bytes smem")
_PARAMETERS = re.compile(r"\([^()]*(?:\([^()]*\)[^()]*)*\)$")
_NOISE = re.compile(r"^(?:ptxas info .*| +\d+ bytes stack frame.*)\n", re.MULTILINE)


def command(unit: Unit, *, light: Path | None) -> list[str]:
    """nvcc's call: torch's flags, the light folder (if any) first, and ptxas asked for what it used.

    With light headers the two halves of its work run side by side. With full ones, whose errors a person
    reads, it is nvcc alone.
    """
    first = ["-I", str(light / NVCC_FOLDER), "-I", str(light)] if light else []
    # nvcc knows no `-iquote`; the preprocessor that it calls does.
    quoted = ["-Xcompiler", "-iquote", "-Xcompiler", unit.source.folder] if unit.source.folder else []
    outputs = ["-MMD", "-MF", str(unit.dependencies), "-c", str(unit.path), "-o", str(unit.object)]
    nvcc = [*unit.commands.nvcc, "-Xptxas", "-v", *first, *quoted, *unit.commands.cuda_cflags, *outputs]
    # As text, since whoever runs it may be confined to folders that this package is not in.
    steps = Path(nvcc_steps.__file__).read_text()
    return [sys.executable, "-I", "-S", "-c", steps, str(unit.dependencies), *nvcc] if light else nvcc


def first_error(log: str) -> str:
    """The first error as `file:line: error: text`, or nothing; errors of the host compiler count too."""
    found = _ERROR.search(log)
    if found:
        return f"{found['file']}:{found['line']}: error: {found['text']}"
    if host := cpp.first_error(log):
        return host
    assembler = _PTXAS_ERROR.search(log)
    return f"ptxas: error: {assembler['text']}" if assembler else ""


def resources(log: str) -> list[Kernel]:
    """What each kernel takes, from `ptxas -v`."""
    return [
        Kernel(
            name=_demangled(found["kernel"]),
            architecture=found["architecture"],
            registers=int(found["registers"]),
            shared_bytes=sum(map(int, _SHARED.findall(found["rest"]))),
            stack_bytes=int(found["stack"]),
            spill_store_bytes=int(found["stores"]),
            spill_load_bytes=int(found["loads"]),
        )
        for found in _PTXAS.finditer(log)
    ]


def _demangled(name: str) -> str:
    """A kernel's name as it is written, without its parameters; as it was where the C++ library cannot read it."""
    with suppress(OSError, AttributeError):
        demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
        demangle.restype = ctypes.c_void_p
        status = ctypes.c_int()
        if text := demangle(name.encode(), None, None, ctypes.byref(status)):
            written = ctypes.string_at(text).decode("utf-8", "replace")
            ctypes.CDLL(None).free(ctypes.c_void_p(text))
            return _PARAMETERS.sub("", written).removeprefix("void ")
    return name


def without_resources(log: str) -> str:
    """The log as it were had ptxas not been asked."""
    return _NOISE.sub("", log)
