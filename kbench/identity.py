"""What does a verdict depend on? All of it under one name, so that a run need not repeat what is known.

Equal names mean: the same files, the same settings, the same kbench, torch, compilers and device. What cannot be
read has no name, and what has none is judged again.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from kbench.records import Candidate, Environment, Task

# Variables by which a user changes what torch, CUDA, the compilers or the interpreter do.
_PREFIXES = (
    *("TORCH", "PYTORCH", "ATEN", "TRITON", "CUDA", "CUDNN", "CUBLAS", "NVIDIA", "NVCC", "NCCL", "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_"),
    *("PYTHON", "LD_", "CC", "CXX", "CFLAGS", "CPPFLAGS", "LDFLAGS", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH"),
)
# More beside one candidate is no source code.
_MOST_BYTES = 64 * 2**20


def identity(task: Task, candidate: Candidate, *, asked: Mapping[str, object], environment: Environment) -> str:
    """Name a verdict by all that it depends on; empty where a part cannot be read.

    `asked` is what the run asks of the candidate: settings, cases, seed if one was given, verify or time, sandbox.
    """
    if not (candidate.sha256 and task.sha256):
        return ""
    try:
        facts = {
            "task": [task.name, task.sha256, _folder(task.reference.with_suffix(""))],
            "candidate": [candidate.name, candidate.sha256, _folder(candidate.source.with_suffix(""))],
            "asked": dict(asked),
            # The commit is of the candidates' tree, whose files are above.
            "environment": {**asdict(environment), "commit": ""},
            "variables": {name: value for name, value in sorted(os.environ.items()) if name.startswith(_PREFIXES)},
            "kbench": _own_sources(),
            "compilers": [_stamp(path) for path in _compilers()],
        }
    except OSError:
        return ""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode(errors="surrogateescape")).hexdigest()


def _folder(path: Path) -> str:
    """Digest what lies in the folder of a file's own, which it may read."""
    return _digest(sorted(found for found in path.rglob("*") if found.is_file()), path) if path.is_dir() else ""


def _digest(files: Iterable[Path], root: Path) -> str:
    digest = hashlib.sha256()
    n_bytes = 0
    for file in files:
        n_bytes += file.stat().st_size
        if n_bytes > _MOST_BYTES:
            raise OSError(f"more than {_MOST_BYTES} bytes in {root}")
        digest.update(f"{file.relative_to(root)}\0{file.stat().st_size}\0".encode(errors="surrogateescape"))
        digest.update(file.read_bytes())
    return digest.hexdigest()


@functools.cache
def _own_sources() -> str:
    root = Path(__file__).parent
    return _digest(sorted(root.rglob("*.py")), root)


def _compilers() -> Iterable[str]:
    for name in (os.environ.get("CXX"), "c++", "g++", "nvcc"):
        if name and (found := shutil.which(name)):
            yield found
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        if home:
            yield f"{home}/bin/nvcc"


def _stamp(path: str) -> list[object]:
    real = os.path.realpath(path)
    if not os.path.exists(real):
        return [path]
    found = os.stat(real)
    return [path, real, found.st_size, found.st_mtime_ns]
