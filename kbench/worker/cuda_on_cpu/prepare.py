"""A request to build CUDA becomes a request to build C++: translated sources, the runtime, and flags for each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from kbench.worker.build import cuda_on_cpu, toolchain
from kbench.worker.build.cuda_on_cpu import DEVICE_END, HOST_END, INCLUDE, RUNTIME_END
from kbench.worker.build.request import BuildRequest, Source
from kbench.worker.cuda_on_cpu.translate import Unsupported, translate

_FOLDER = Path(__file__).parent
_RUNTIME = ("runtime", "allocator")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A request for the C++ compiler, or the features because of which there is none."""

    request: BuildRequest
    unsupported: tuple[Unsupported, ...] = ()


def prepare(request: BuildRequest) -> Prepared:
    """Make a request for CUDA sources one that needs neither nvcc nor a CUDA build of torch."""
    unsupported: list[Unsupported] = []
    folders = (*request.extra_include_paths, *_folders_named((*request.extra_cflags, *request.extra_cuda_cflags)))
    device: list[Source] = []
    host: list[Source] = []
    for source in request.sources:
        done = translate(source.text, filename=source.path, read_include=_Headers((source.folder, *folders)).read)
        unsupported += done.unsupported
        part, end = (device, DEVICE_END) if done.has_device_code else (host, HOST_END)
        part.append(replace(source, path=f"{source.path}{end}", text=done.text))
    prepared = replace(
        request,
        # Device code takes longest; and of functions that several define, the linker takes the first.
        sources=(*device, *host, *_runtime_sources()),
        extra_cflags=(*request.extra_cflags, *_definitions((*request.cuda_flags, *request.extra_cuda_cflags))),
        extra_ldflags=tuple(flag for flag in request.extra_ldflags if not flag.startswith(("-lcud", "-lcurand", "-lnv"))),
        extra_cuda_cflags=(),
        cuda_flags=(),
        architectures="",
        with_cuda=False,
    )
    return Prepared(request=prepared, unsupported=tuple(unsupported))


def _runtime_sources() -> Iterator[Source]:
    # The digest makes another request of it when the runtime, its headers or our flags change.
    for name in _RUNTIME:
        text = f'// {_digest()}\n#include "{name}.cpp"\n'
        yield Source(path=f"kbench_{name}{RUNTIME_END}", text=text, folder=str(_FOLDER / "runtime"))


@cache
def _digest() -> str:
    files = sorted(path for folder in (INCLUDE, _FOLDER / "runtime") for path in folder.rglob("*") if path.is_file())
    content = hashlib.sha256(repr(cuda_on_cpu.FLAGS).encode())
    for path in files:
        content.update(str(path.relative_to(_FOLDER)).encode() + b"\0" + path.read_bytes() + b"\0")
    return content.hexdigest()


class _Headers:
    """The candidate's own headers, beside a source or where its include paths say, each read once."""

    def __init__(self, folders: Iterable[str]) -> None:
        self._folders = [Path(folder) for folder in folders if folder]
        self._seen: set[Path] = set()

    def read(self, name: str) -> str | None:
        """The text of a header; empty where it was read before, None where it is no header of the candidate's."""
        # Whatever folders are named: CUDA's headers are ours, and torch's are those of the torch that is there.
        if any((folder / name).is_file() for folder in (INCLUDE, toolchain.current().include)):
            return None
        for folder in self._folders:
            path = (folder / name).resolve()
            if path in self._seen:
                return ""
            try:
                text = path.read_text(encoding="utf-8", errors="surrogateescape")
            except OSError:
                continue
            self._seen.add(path)
            return text
        return None


def _definitions(flags: Iterable[str]) -> Iterator[str]:
    """What of nvcc's flags says something about the source: macros and include folders."""
    rest = iter(flags)
    for flag in rest:
        if flag in {"-D", "-U", "-I", "-include", "-isystem"}:
            yield from (flag, next(rest, ""))
        elif flag.startswith(("-D", "-U", "-I")):
            yield flag


def _folders_named(flags: Iterable[str]) -> Iterator[str]:
    rest = iter(flags)
    for flag in rest:
        if flag in {"-I", "-isystem", "-iquote"}:
            yield next(rest, "")
        elif flag.startswith("-I"):
            yield flag.removeprefix("-I")
