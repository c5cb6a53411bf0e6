"""The trusted half: compile what a candidate asked for, and keep it by its content."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from kbench.records import Kernel
from kbench.worker.build import cpp, cuda, language_of, toolchain, user_files
from kbench.worker.build.cache import Cache, fingerprints
from kbench.worker.build.headers import light_headers
from kbench.worker.build.language import Commands, Language, Unit
from kbench.worker.build.precompiled import Precompiled, precompiled
from kbench.worker.build.processes import Call, Confine, Finished, cut, run_all
from kbench.worker.build.request import BuildRequest, BuildResult

# The full headers take a minute on two slow cores; a template monster of a library takes many.
TIMEOUT_S = 1800.0
# What says that the linker, which has no line to name, is not content.
_LINKER_ERROR = re.compile(r"undefined reference|cannot find|multiple definition|error", re.IGNORECASE)
# A failure that a new file may mend is no property of the sources.
_MISSING_FILE = re.compile(r"No such file or directory|could not open source file|cannot open source file|cannot find -l")


def build(request: BuildRequest, cache: Cache, *, jobs: int, confine: Confine | None = None, capabilities: Sequence[str] = ()) -> BuildResult:
    """Find or make what a request asks for; whoever asks for the same meanwhile waits.

    At most `jobs` compilers run at a time, each confined by `confine` to the folder that it is called
    with. `capabilities` are those of the GPUs to build for where the request names none. Every
    failure is a result, none an exception.
    """
    tools = toolchain.current()
    if request.with_cuda and not tools.builds_cuda:
        return BuildResult(ok=False, refused=_why_no_cuda(), transient=True)
    architectures = (request.architectures or toolchain.architectures_for(capabilities)) if request.with_cuda else ""
    request = replace(request, architectures=architectures)
    key = toolchain.key(request)
    if (found := cache.lookup(key)) is not None:
        return found
    try:
        with cache.lock(key) as folder:
            return cache.lookup(key) or _make(key, cache, _Build(request, cache, folder, jobs, confine))
    except FileNotFoundError as error:
        return BuildResult(ok=False, key=key, refused=f"cannot start the compiler: {error}", transient=True)
    except (OSError, subprocess.SubprocessError) as error:
        return BuildResult(ok=False, key=key, failure=f"cannot build in {cache.root}: {error}", transient=True)


def _why_no_cuda() -> str:
    if torch.version.cuda is None:
        return "this torch is a CPU build: CUDA extensions need a CUDA build of torch"
    return "no nvcc with its headers was found; set CUDA_HOME to the CUDA toolkit"


def _make(key: str, cache: Cache, work: _Build) -> BuildResult:
    started = time.monotonic()
    made = work.run()
    result = BuildResult(
        ok=made.artifact is not None,
        key=key,
        log=cut(made.log),
        failure=made.failure,
        headers=made.headers,
        seconds=time.monotonic() - started,
        transient=made.is_transient,
        kernels=tuple(made.kernels),
    )
    if made.is_transient:
        return result
    return cache.store(result, fingerprints(made.user_headers), made.artifact)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    artifact: Path | None = None
    log: str = ""
    failure: str = ""
    headers: str = "full"
    is_transient: bool = False
    kernels: Sequence[Kernel] = ()
    user_headers: Sequence[str] = ()


class _Build:
    """One build in its work folder."""

    def __init__(self, request: BuildRequest, cache: Cache, folder: Path, jobs: int, confine: Confine | None) -> None:
        self._request = request
        self._cache = cache
        self._folder = folder
        self._jobs = jobs
        self._confine = confine
        self._deadline_s = time.monotonic() + TIMEOUT_S
        self._foreseen = user_files.included(request)
        self._environment: dict[str, str] = {}

    def run(self) -> _Made:
        """Compile with light headers what can be, the rest with the full ones, and link."""
        try:
            commands, self._environment = toolchain.commands(self._request), toolchain.environment(self._request)
        except (OSError, ValueError, RuntimeError) as error:
            return _Made(failure=f"{type(error).__name__}: {error}", is_transient=True)
        units = [self._unit(index, commands) for index in range(len(self._request.sources))]
        finished: dict[Unit, Finished] = {}
        light = self._light_folder()
        if light is not None:
            finished = self._compile_light(units, light)
        # What the light headers lack, the full ones have; an error of the source's own shows in both, and a missing
        # file is missing in both.
        rest = [unit for unit in units if not (unit in finished and self._is_settled(unit, finished[unit]))]
        finished |= self._compile(rest, None)
        made = _Made(
            log="".join(self._language(unit).without_resources(finished[unit].output) for unit in units),
            headers="full" if rest else "light",
            kernels=[kernel for unit in units for kernel in self._language(unit).resources(finished[unit].output)],
            user_headers=sorted(set(self._foreseen).union(*(self._read_by(unit) for unit in units))),
        )
        if failed := [unit for unit in units if finished[unit].code]:
            return self._failed(made, finished, failed)
        return self._link(units, commands, made)

    def _unit(self, index: int, commands: Commands) -> Unit:
        source = self._request.sources[index]
        path = self._folder / f"{index}_{Path(source.path).name}"
        path.write_bytes(source.text.encode("utf-8", "surrogateescape"))
        return Unit(
            source=source,
            path=path,
            object=path.with_suffix(f".{index}.o"),
            dependencies=path.with_suffix(f".{index}.d"),
            commands=commands,
        )

    def _light_folder(self) -> Path | None:
        flags = (*self._request.extra_cflags, *self._request.extra_cuda_cflags)
        texts = [*(source.text for source in self._request.sources), *self._foreseen.values(), *flags]
        headers = light_headers(texts, toolchain.current().include)
        if headers is None:
            return None
        folder = self._folder / "light"
        for name, text in headers.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return folder

    def _compile_light(self, units: Sequence[Unit], light: Path) -> dict[Unit, Finished]:
        """Compile with a precompiled header where there is one, or make one meanwhile."""
        header = precompiled(self._request, units[0]) if self._language(units[0]) is cpp else None
        if header is None:
            return self._compile(units, light)
        if (prefix := header.copied_to(self._folder / "precompiled", self._cache)) is not None:
            prefixed = [replace(units[0], prefix=prefix), *units[1:]]
            return dict(zip(units, self._compile(prefixed, light).values(), strict=True))
        # nvcc keeps two cores busy, a C++ compiler one; who waits for this build must not wait for the next one's.
        cores = sum(2 if self._language(unit) is cuda else 1 for unit in units)
        if len(os.sched_getaffinity(0)) > cores and header.is_worth_making(self._cache):
            # Where another build makes the same one at this moment, this one does without.
            with suppress(BlockingIOError), self._cache.lock(header.key, wait=False) as folder:
                return self._compile(units, light, beside=(header, folder))
        return self._compile(units, light)

    def _compile(self, units: Sequence[Unit], light: Path | None, *, beside: tuple[Precompiled, Path] | None = None) -> dict[Unit, Finished]:
        languages = [self._language(unit) for unit in units]
        calls = [Call(language.command(unit, light=light), self._folder) for language, unit in zip(languages, units, strict=True)]
        needs = [language.LIGHT_MEMORY_BYTES if light else language.FULL_MEMORY_BYTES for language in languages]
        if beside is not None:
            header, folder = beside
            calls.append(Call(header.command(folder), folder))
        ends = self._run(calls, memory_bytes=max(needs, default=0))
        if beside is not None:
            header.keep(folder, self._cache, ends.pop())
        return dict(zip(units, ends, strict=True))

    def _run(self, calls: Sequence[Call], *, memory_bytes: int) -> list[Finished]:
        return run_all(
            calls,
            jobs=self._jobs,
            timeout_s=self._deadline_s - time.monotonic(),
            memory_bytes=memory_bytes,
            confine=self._confine,
            environment=self._environment,
        )

    def _is_settled(self, unit: Unit, end: Finished) -> bool:
        """Whether a unit may stay as the light headers left it: the names in all that it read were known."""
        if end.code:
            return _MISSING_FILE.search(end.output) is not None
        folders = tuple(f"{os.path.realpath(folder)}/" for folder in toolchain.searched_folders())
        return all(path.startswith(folders) for path in self._read_by(unit) - set(self._foreseen))

    def _read_by(self, unit: Unit) -> set[str]:
        """The user's own headers that a source read; other versions of torch's and CUDA's have another key."""
        tools = toolchain.current()
        own = [self._folder, tools.include, *([tools.cuda_home] if tools.cuda_home else [])]
        folders = tuple(f"{os.path.realpath(folder)}/" for folder in own)
        return {path for path in user_files.listed(unit.dependencies) if not path.startswith(folders)}

    def _failed(self, made: _Made, finished: Mapping[Unit, Finished], failed: Sequence[Unit]) -> _Made:
        end = finished[failed[0]]
        return replace(
            made,
            failure=self._language(failed[0]).first_error(end.output) or _last_line(end),
            is_transient=any(finished[unit].is_transient for unit in failed) or bool(_MISSING_FILE.search(made.log)),
        )

    def _link(self, units: Sequence[Unit], commands: Commands, made: _Made) -> _Made:
        target = self._folder / (self._request.name if self._request.is_standalone else f"{self._request.name}.so")
        call = [*commands.cxx, *(str(unit.object) for unit in units), *commands.ldflags, "-o", str(target)]
        (end,) = self._run([Call(call, self._folder)], memory_bytes=0)
        made = replace(made, log=made.log + end.output)
        if end.code:
            return replace(made, failure=_last_line(end), is_transient=end.is_transient or bool(_MISSING_FILE.search(end.output)))
        return replace(made, artifact=target)

    def _language(self, unit: Unit) -> Language:
        return language_of(unit.source, with_cuda=self._request.with_cuda)


def _last_line(end: Finished) -> str:
    """What to say where no line of a source is at fault."""
    if end.timed_out:
        return f"the compiler took more than {TIMEOUT_S:g} s"
    lines = end.output.strip().splitlines()
    errors = [line for line in lines if _LINKER_ERROR.search(line)]
    return (errors or lines[-1:] or [f"the compiler ended with {end.code}"])[0][:500]
