"""A request to build CUDA becomes a request to build C++: translated sources, the runtime, and flags for each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from kbench.worker.build.request import BuildRequest, Source
from kbench.worker.cuda_on_cpu.translate import Unsupported, translate

_FOLDER = Path(__file__).parent
_INCLUDE = _FOLDER / "include"
_RUNTIME = ("runtime", "allocator")

# The compiler calls the runtime at every access of memory, and where an address or an index is wrong; the calls
# are the sanitizers', the functions our own, and no sanitizer is linked. Barriers are calls too, so accesses stay
# on their side of them.
_INSTRUMENTATION = (
    "-fsanitize=thread,alignment,bounds",
    "-U__SANITIZE_THREAD__",
    "--param=tsan-instrument-func-entry-exit=0",
    "--param=tsan-distinguish-volatile=1",
)
# A load that the source makes under a condition is not made without it: it would look like the thread's own.
_NO_SPECULATION = ("-fno-hoist-adjacent-loads", "-fno-tree-phiprop", "-fno-tree-loop-if-convert")
_TRANSLATED = (
    "-O2",
    # Line numbers and nothing else, in sections that the runtime can read.
    "-g1",
    "-gz=none",
    "-Wno-unknown-pragmas",
    "-D__assert_fail=kbench_cuda_assert_fail",
    *_INSTRUMENTATION,
    *_NO_SPECULATION,
)
_RUNTIME_FLAGS = ("-O2", "-fno-sanitize=all")
# How the sources of a prepared request are told apart: by the ends of their names, which torch sees as C++.
_TRANSLATED_END, _RUNTIME_END = ".cuda_on_cpu.cpp", ".runtime.cpp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A request for the C++ compiler, or the features because of which there is none."""

    request: BuildRequest
    unsupported: tuple[Unsupported, ...] = ()


def prepare(request: BuildRequest) -> Prepared:
    """Make a request for CUDA sources one that needs neither nvcc nor a CUDA build of torch."""
    unsupported: list[Unsupported] = []
    sources = []
    for source in request.sources:
        done = translate(source.text, filename=source.path, read_include=_Headers(source.folder).read)
        unsupported += done.unsupported
        sources.append(replace(source, path=f"{source.path}{_TRANSLATED_END}", text=done.text))
    prepared = replace(
        request,
        sources=(*sources, *_runtime_sources()),
        extra_cflags=(*request.extra_cflags, *_definitions((*request.cuda_flags, *request.extra_cuda_cflags))),
        extra_ldflags=tuple(flag for flag in request.extra_ldflags if not flag.startswith(("-lcud", "-lcurand", "-lnv"))),
        extra_cuda_cflags=(),
        cuda_flags=(),
        architectures="",
        with_cuda=False,
    )
    return Prepared(request=prepared, unsupported=tuple(unsupported))


def include_dirs() -> tuple[Path, ...]:
    """The folders with CUDA's and torch's CUDA headers, for the front of the include path."""
    return (_INCLUDE,)


def compile_flags(path: str = _TRANSLATED_END) -> tuple[str, ...]:
    """The flags, behind all others, for a source of a prepared request; without `path`, for translated text."""
    if path.endswith(_TRANSLATED_END):
        return _TRANSLATED
    return _RUNTIME_FLAGS if path.endswith(_RUNTIME_END) else ()


def is_prepared(path: str) -> bool:
    """Whether a source is one that `prepare` made."""
    return path.endswith((_TRANSLATED_END, _RUNTIME_END))


def _runtime_sources() -> Iterator[Source]:
    # The digest makes another request of it when the runtime or its headers change.
    for name in _RUNTIME:
        text = f'// {_digest()}\n#include "{name}.cpp"\n'
        yield Source(path=f"kbench_{name}{_RUNTIME_END}", text=text, folder=str(_FOLDER / "runtime"))


@cache
def _digest() -> str:
    files = sorted(path for folder in (_INCLUDE, _FOLDER / "runtime") for path in folder.rglob("*") if path.is_file())
    content = hashlib.sha256()
    for path in files:
        content.update(str(path.relative_to(_FOLDER)).encode() + b"\0" + path.read_bytes() + b"\0")
    return content.hexdigest()


class _Headers:
    """Quoted includes from a source's own folder, each read once."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder) if folder else None
        self._seen: set[Path] = set()

    def read(self, name: str) -> str | None:
        """The text of a header; empty where it was read before."""
        if self._folder is None:
            return None
        path = (self._folder / name).resolve()
        if path in self._seen:
            return ""
        try:
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return None
        self._seen.add(path)
        return text


def _definitions(flags: Iterable[str]) -> Iterator[str]:
    """What of nvcc's flags says something about the source: macros and include folders."""
    rest = iter(flags)
    for flag in rest:
        if flag in {"-D", "-U", "-I", "-include", "-isystem"}:
            yield from (flag, next(rest, ""))
        elif flag.startswith(("-D", "-U", "-I")):
            yield flag
