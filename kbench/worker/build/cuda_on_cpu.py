"""CUDA on the CPU: how are a translated source and the runtime compiled? See `kbench.worker.cuda_on_cpu`."""

from __future__ import annotations

from pathlib import Path

from kbench.records import Kernel
from kbench.worker.build import cpp
from kbench.worker.build.language import Unit

# Measured with g++ 12 and torch 2.13; the instrumentation adds a fifth to C++ as it is.
LIGHT_MEMORY_BYTES = 800 * 2**20
FULL_MEMORY_BYTES = 2000 * 2**20

# How such sources are told apart: by the ends of their names, which torch sees as C++.
DEVICE_END, HOST_END, RUNTIME_END = ".cuda_on_cpu.cpp", ".host_of_cuda.cpp", ".runtime.cpp"
ENDINGS = (DEVICE_END, HOST_END, RUNTIME_END)
# CUDA's and torch's CUDA headers.
INCLUDE = Path(__file__).parents[1] / "cuda_on_cpu" / "include"

# The compiler calls the runtime at every access of memory, and where an address or an index is wrong; the calls
# are the sanitizers', the functions our own, and no sanitizer is linked. Barriers are calls too, so accesses stay
# on their side of them.
_INSTRUMENTATION = (
    "-fsanitize=thread,alignment,bounds",
    "-U__SANITIZE_THREAD__",
    "--param=tsan-instrument-func-entry-exit=0",
    "--param=tsan-distinguish-volatile=1",
)
# The calls are added late, so an access must stay where the source makes it: a load not made without its condition
# (it would look like the thread's own), nor under the condition of its later use (the race would be gone).
_IN_PLACE = ("-fno-hoist-adjacent-loads", "-fno-tree-phiprop", "-fno-tree-loop-if-convert", "-fno-tree-sink")
_DEVICE = (
    "-O1",
    # Line numbers and nothing else, in sections that the runtime can read.
    "-g1",
    "-gz=none",
    "-Wno-unknown-pragmas",
    "-D__assert_fail=kbench_cuda_assert_fail",
    *_INSTRUMENTATION,
    *_IN_PLACE,
)
_RUNTIME = ("-O2", "-fno-sanitize=all")
# Behind all others, by the end of a source's name.
FLAGS = {DEVICE_END: _DEVICE, HOST_END: (), RUNTIME_END: _RUNTIME}


def flags_of(path: str) -> tuple[str, ...]:
    """The flags, behind all others, for a source of that name."""
    return next(flags for end, flags in FLAGS.items() if path.endswith(end))


def command(unit: Unit, *, light: Path | None) -> list[str]:
    """The C++ compiler's call, with our CUDA headers before torch's and the flags of a kernel behind all others.

    Ours count as the system's: they are part of the request's key, and not the user's to change.
    """
    folders = [part for folder in (INCLUDE, *([light] if light else [])) for part in ("-isystem", str(folder))]
    compiler, *rest = cpp.command(unit, light=None)
    return [compiler, *folders, *rest, *flags_of(unit.source.path)]


def first_error(log: str) -> str:
    """The first error as `file:line: error: text`, or nothing."""
    return cpp.first_error(log)


def resources(log: str) -> list[Kernel]:
    """What kernels take on a device is not known here."""
    return cpp.resources(log)


def without_resources(log: str) -> str:
    """The log as it is."""
    return log
