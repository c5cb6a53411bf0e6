"""The trusted half: compile what a candidate asked for, and keep it by its content."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from kbench.worker.build import BUILDERS, toolchain
from kbench.worker.build.cache import Cache, fingerprints
from kbench.worker.build.headers import light_headers
from kbench.worker.build.language import Commands, Language, Unit
from kbench.worker.build.processes import Finished, cut, run_all
from kbench.worker.build.request import BuildRequest, BuildResult, KernelResources

# The full headers take a minute on two slow cores; a template monster of a library takes many.
TIMEOUT_S = 1800.0
# A header below these belongs to the system or to torch, whose versions are in the key already.
_SYSTEM = ("/usr/", "/opt/", "/lib")


def build(request: BuildRequest, cache: Cache, *, jobs: int) -> BuildResult:
    """Find or make what a request asks for; who asks for the same at the same time waits for one build."""
    if not request.sources:
        return BuildResult(ok=False, failure="no sources")
    if request.with_cuda and not toolchain.current().builds_cuda:
        return BuildResult(ok=False, refused=_why_no_cuda(), transient=True)
    key = toolchain.key(request)
    if (found := cache.lookup(key)) is not None:
        return found
    with cache.lock(key):
        if (found := cache.lookup(key)) is not None:
            return found
        started = time.monotonic()
        made = _Build(request, key, cache.work_folder(key), jobs).run()
        result = BuildResult(
            ok=made.artifact is not None,
            key=key,
            log=cut(made.log),
            failure=made.failure,
            headers=made.headers,
            seconds=time.monotonic() - started,
            transient=made.is_transient,
            resources=tuple(made.resources),
        )
        return result if made.is_transient else cache.store(result, fingerprints(made.user_headers), made.artifact)


def _why_no_cuda() -> str:
    if torch.version.cuda is None:
        return "this torch is a CPU build: CUDA extensions need a CUDA build of torch"
    return "no nvcc with its headers was found; set CUDA_HOME to the CUDA toolkit"


@dataclass(slots=True)
class _Made:
    artifact: Path | None = None
    log: str = ""
    failure: str = ""
    headers: str = "full"
    is_transient: bool = False
    resources: Sequence[KernelResources] = ()
    user_headers: Sequence[str] = ()


class _Build:
    """One build in its work folder."""

    def __init__(self, request: BuildRequest, key: str, folder: Path, jobs: int) -> None:
        self._request = request
        self._key = key
        self._folder = folder
        self._jobs = jobs
        self._deadline_s = time.monotonic() + TIMEOUT_S

    def run(self) -> _Made:
        try:
            commands = toolchain.commands(self._request)
        except (OSError, ValueError, RuntimeError) as error:
            return _Made(failure=f"{type(error).__name__}: {error}")
        units = [self._unit(index, commands) for index in range(len(self._request.sources))]
        light = self._light_folder()
        finished = self._compile(units, light)
        made = _Made(headers="light" if light else "full")
        if light is not None and any(end.code for end in finished):
            # What the light headers lack, the full ones have; an error of the source's own shows in both.
            made.headers = "full"
            finished = self._compile(units, None)
        made.log = "".join(self._language(unit).without_resources(end.output) for unit, end in zip(units, finished, strict=True))
        made.resources = [r for unit, end in zip(units, finished, strict=True) for r in self._language(unit).resources(end.output)]
        for unit, end in zip(units, finished, strict=True):
            if end.code:
                made.is_transient = any(other.is_transient for other in finished)
                made.failure = self._language(unit).first_error(end.output) or _last_line(end)
                return made
        made.user_headers = sorted(set().union(*(self._headers_of(unit) for unit in units)))
        self._link(units, commands, made)
        return made

    def _unit(self, index: int, commands: Commands) -> Unit:
        source = self._request.sources[index]
        path = self._folder / f"{index}_{Path(source.path).name}"
        path.write_text(source.text, encoding="utf-8", errors="surrogateescape")
        return Unit(
            source=source,
            path=path,
            object=path.with_suffix(f".{index}.o"),
            dependencies=path.with_suffix(f".{index}.d"),
            commands=commands,
        )

    def _light_folder(self) -> Path | None:
        headers = light_headers((source.text for source in self._request.sources), toolchain.current().include)
        if headers is None:
            return None
        folder = self._folder / "light"
        for name, text in headers.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return folder

    def _compile(self, units: Sequence[Unit], light: Path | None) -> list[Finished]:
        calls = [self._language(unit).command(unit, light=light) for unit in units]
        return run_all(calls, folder=self._folder, jobs=self._jobs, timeout_s=self._deadline_s - time.monotonic())

    def _link(self, units: Sequence[Unit], commands: Commands, made: _Made) -> None:
        target = self._folder / (self._request.name if self._request.is_standalone else f"{self._request.name}.so")
        call = [*commands.cxx, *(str(unit.object) for unit in units), *commands.ldflags, "-o", str(target)]
        (end,) = run_all([call], folder=self._folder, jobs=1, timeout_s=self._deadline_s - time.monotonic())
        made.log += end.output
        if end.code:
            made.is_transient = end.is_transient
            made.failure = _last_line(end)
        else:
            made.artifact = target

    def _headers_of(self, unit: Unit) -> set[str]:
        """The user's own headers that a source read, from the compiler's list of dependencies."""
        try:
            text = unit.dependencies.read_text()
        except OSError:
            return set()
        names = shlex.split(text.replace("\\\n", " ").partition(":")[2])
        torch_folder = str(toolchain.current().include)
        own = str(self._folder)
        return {name for name in names if not name.startswith((*_SYSTEM, torch_folder, own))}

    @staticmethod
    def _language(unit: Unit) -> Language:
        return BUILDERS["cuda" if unit.source.is_cuda else "cpp"]


def _last_line(end: Finished) -> str:
    if end.timed_out:
        return f"the compiler took more than {TIMEOUT_S:g} s"
    lines = [line for line in end.output.splitlines() if re.search(r"error|undefined reference|cannot find", line)]
    lines = lines or end.output.strip().splitlines()
    return lines[-1][:500] if lines else f"the compiler ended with {end.code}"
