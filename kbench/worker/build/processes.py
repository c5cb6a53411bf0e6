"""Run compilers side by side: at a low priority, ended at the deadline with all that they started."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kbench.worker.build.request import LOG_LIMIT_CHARACTERS

# A shared object of kernels is some MB; this only stops a runaway from filling the disk.
_FILE_LIMIT_BYTES = 4 * 2**30
_NICENESS = 10
# How often deadlines and ends are looked at; a compile takes seconds.
_POLL_S = 0.01
# Whatever else holds the memory may never give it back.
_PATIENCE_S = 60.0
# What compilers say when the machine gave out and the source is not at fault.
_TRANSIENT = re.compile(
    r"Killed signal terminated|died due to signal (?:9|15)|No space left on device|[Cc]annot allocate memory"
    r"|virtual memory exhausted|out of memory allocating|std::bad_alloc|Disk quota exceeded"
    r"|Resource temporarily unavailable"
)

Confine = Callable[[Path], object]


@dataclass(frozen=True, slots=True)
class Call:
    """A program with its arguments, and the folder that it runs in: all that it may write to."""

    command: Sequence[str]
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How one command ended. `code` is 0 for success and negative for a signal."""

    code: int
    output: str
    timed_out: bool = False

    @property
    def is_transient(self) -> bool:
        """Whether the machine, not the source, made it fail."""
        return self.code != 0 and (self.code < 0 or self.timed_out or bool(_TRANSIENT.search(self.output)))


@dataclass(frozen=True, slots=True)
class _Running:
    process: subprocess.Popen[bytes]
    # Held open rather than named: the program may put something else in a file's place.
    output: IO[bytes]


def run_all(
    calls: Sequence[Call],
    *,
    jobs: int,
    timeout_s: float,
    memory_bytes: int = 0,
    confine: Confine | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[Finished]:
    """Run programs, at most `jobs` at a time and within memory, and answer in their order.

    One waits until `memory_bytes` are available, unless it would wait for too long alone. `confine` is
    called with the folder in each child before its program starts, to take away whatever a compiler
    does not need: it runs on the candidate's sources and flags, in the candidate's `environment`.
    """
    started_s = time.monotonic()
    deadline_s = started_s + timeout_s
    environment = os.environ if environment is None else environment
    waiting = list(enumerate(calls))
    running: dict[int, _Running] = {}
    finished: dict[int, Finished] = {}
    try:
        while waiting or running:
            while waiting and len(running) < max(1, jobs):
                is_patient = running or time.monotonic() - started_s < _PATIENCE_S
                if is_patient and _available_bytes() < memory_bytes:
                    break
                index, call = waiting.pop(0)
                running[index] = _start(call, confine, environment)
            is_late = time.monotonic() > deadline_s
            for index in [index for index, it in running.items() if is_late or _has_ended(it.process)]:
                finished[index] = _finish(running.pop(index), timed_out=is_late)
            if running or waiting:
                time.sleep(_POLL_S)
    finally:
        for it in running.values():
            _end(it.process)
    return [finished[index] for index in range(len(calls))]


def cut(text: str) -> str:
    """Cut the middle out of a long output: the first error and the last words are what counts."""
    if len(text) <= LOG_LIMIT_CHARACTERS:
        return text
    half = LOG_LIMIT_CHARACTERS // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def _available_bytes() -> int:
    with open("/proc/meminfo") as file:
        found = re.search(r"^MemAvailable: +(\d+) kB", file.read(), re.MULTILINE)
    return int(found[1]) * 1024 if found else sys.maxsize


def _start(call: Call, confine: Confine | None, environment: Mapping[str, str]) -> _Running:
    def prepare() -> None:
        os.nice(_NICENESS)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_LIMIT_BYTES, _FILE_LIMIT_BYTES))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if confine is not None:
            confine(call.folder)

    output = tempfile.TemporaryFile()  # noqa: SIM115 - read and closed when the program has ended
    try:
        process = subprocess.Popen(
            call.command,
            cwd=call.folder,
            # Messages in English, for they are parsed; temporary files in the build's own folder.
            env={**environment, "LC_ALL": "C", "TMPDIR": str(call.folder)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=prepare,  # noqa: PLW1509 - the child only lowers its own rights and starts the program
        )
    except BaseException:
        output.close()
        raise
    return _Running(process, output)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Look without reaping, so that the process group keeps its number until it is signalled."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _finish(running: _Running, *, timed_out: bool) -> Finished:
    timed_out = timed_out and not _has_ended(running.process)
    _end(running.process)
    with running.output as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        head = file.read(LOG_LIMIT_CHARACTERS)
        file.seek(max(file.tell(), size - LOG_LIMIT_CHARACTERS))
        text = (head + file.read()).decode("utf-8", "replace")
    return Finished(code=running.process.returncode, output=text, timed_out=timed_out)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the whole group: a compiler that is done has no business to leave something running."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
