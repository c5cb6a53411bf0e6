"""CUDA on the CPU: how is a source of a prepared request compiled? A language module like `build.cpp`."""

from __future__ import annotations

from pathlib import Path

from kbench.worker.build import cpp
from kbench.worker.build.language import Unit
from kbench.worker.build.request import KernelResources
from kbench.worker.cuda_on_cpu.prepare import compile_flags, include_dirs

# Measured with g++ 12 and torch 2.13; the instrumentation adds a fifth to C++ as it is.
LIGHT_MEMORY_BYTES = 800 * 2**20
FULL_MEMORY_BYTES = 2000 * 2**20


def command(unit: Unit, *, light: Path | None) -> list[str]:
    """The C++ compiler's call, with our CUDA headers before torch's and the flags of a kernel behind all others.

    Ours count as the system's: they are part of the request's key, and not the user's to change.
    """
    folders = [part for folder in (*include_dirs(), *([light] if light else [])) for part in ("-isystem", str(folder))]
    compiler, *rest = cpp.command(unit, light=None)
    return [compiler, *folders, *rest, *compile_flags(unit.source.path)]


def first_error(log: str) -> str:
    """The first error as `file:line: error: text`, or nothing."""
    return cpp.first_error(log)


def resources(log: str) -> list[KernelResources]:
    """What kernels take on a device is not known here."""
    return cpp.resources(log)


def without_resources(log: str) -> str:
    """The log as it is."""
    return log
