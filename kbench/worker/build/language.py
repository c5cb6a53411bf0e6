"""What a language module offers: BUILDERS in this package's `__init__` lists them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kbench.records import Kernel
from kbench.worker.build.request import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """How torch calls the tools for one request, as argument vectors."""

    cxx: tuple[str, ...]
    cflags: tuple[str, ...]
    ldflags: tuple[str, ...]
    nvcc: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One source on its way to an object file; `prefix` is a header to include first, if any."""

    source: Source
    path: Path
    object: Path
    dependencies: Path
    commands: Commands
    prefix: Path | None = None


class Language(Protocol):
    """How sources of one language are compiled. A module is one of these."""

    LIGHT_MEMORY_BYTES: int
    FULL_MEMORY_BYTES: int

    def command(self, unit: Unit, *, light: Path | None) -> list[str]:
        """The compiler's call."""

    def first_error(self, log: str) -> str:
        """The first error in a log as `file:line: error: text`, or nothing."""

    def resources(self, log: str) -> list[Kernel]:
        """What each kernel takes on the device."""

    def without_resources(self, log: str) -> str:
        """The log without what was asked for only to learn the resources."""
