"""Is there a precompiled header for the C++ side of an extension, or is now the time to make one?

It holds what every binding code includes and no source changes: pybind11, torch's type casters and the
tensor class. Making it takes as long as a build that does without, so the second build with the same
flags makes it beside its own work, and those after it save that time.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kbench.worker.build import toolchain, user_files
from kbench.worker.build.cache import Cache
from kbench.worker.build.headers import light_headers, prefix_header
from kbench.worker.build.language import Unit
from kbench.worker.build.processes import Finished
from kbench.worker.build.request import BuildRequest, BuildResult

_NAME = "prefix.h"
# Anything before this line may change what the headers mean.
_FIRST_LINE = "#include <torch/extension.h>\n"
_OWN_NAME = "-DTORCH_EXTENSION_NAME="
# Flags that a precompiled header depends on by their text alone: they name no file and load no plug-in.
_PLAIN_FLAG = re.compile(r"-O\w*|-g\d?|-w|-pthread|-W[\w=+-]*|-std=[\w+]+|-m[\w.=+-]+|-f(?!plugin|profile)[a-z][\w-]*(?:=[\w-]+)?|-D\w+(?:=[\w.]+)?")
# Headers of torch's functions; only their trimmed form may be in, for sources come with that.
_FUNCTION_HEADER = re.compile(r"/ATen/ops/\w+(?<!_ops)(?<!_native)(?<!_dispatch)\.h$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Precompiled:
    """The header for one set of flags; `command` makes it."""

    key: str
    folder: Path
    command: tuple[str, ...]

    @property
    def header(self) -> Path:
        """What a source includes first."""
        return self.folder / _NAME

    @property
    def _dependencies(self) -> Path:
        return self.folder / f"{_NAME}.d"

    def attach(self, cache: Cache) -> Path | None:
        """Have the compiler find a finished one beside the header; the entry of the cache that it lies in, None where there is none."""
        artifact = cache.artifact(self.key)
        if artifact is None:
            return None
        self._compiled.symlink_to(artifact)
        return artifact.parent

    def is_worth_making(self, cache: Cache) -> bool:
        """Whether these flags were seen before and nobody has tried yet."""
        return cache.was_wanted(self.key) and cache.lookup(self.key) is None

    def keep(self, cache: Cache, end: Finished) -> None:
        """Store what `command` made, or that it cannot be made."""
        if end.is_transient:
            return
        untrimmed = [path for path in user_files.listed(self._dependencies) if self._is_untrimmed(path)]
        is_good = end.code == 0 and not untrimmed
        # Whoever makes the same one at this moment will store it.
        with suppress(BlockingIOError), cache.lock(self.key, wait=False):
            cache.store(BuildResult(ok=is_good, key=self.key), {}, self._compiled if is_good else None)
        self._compiled.unlink(missing_ok=True)

    @property
    def _compiled(self) -> Path:
        return self.folder / f"{_NAME}.gch"

    def _is_untrimmed(self, path: str) -> bool:
        return _FUNCTION_HEADER.search(path) is not None and not path.startswith(os.path.realpath(self.folder))


def precompiled(request: BuildRequest, unit: Unit, folder: Path) -> Precompiled | None:
    """The precompiled header that fits a unit, written out as text in `folder`; None where none may be used."""
    cxx, include = unit.commands.cxx, toolchain.current().include
    is_gcc = re.search(r"g\+\+|gcc", os.path.basename(os.path.realpath(shutil.which(cxx[0]) or ""))) is not None
    is_plain = not request.extra_include_paths and all(_PLAIN_FLAG.fullmatch(flag) for flag in request.extra_cflags)
    headers = light_headers(["pybind11"], include)
    if not is_gcc or not is_plain or headers is None or not unit.source.text.startswith(_FIRST_LINE):
        return None
    for name, text in {**headers, _NAME: prefix_header()}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    flags = [flag for flag in unit.commands.cflags if not flag.startswith(_OWN_NAME)]
    identity = json.dumps([toolchain.current().identity, cxx, flags, sorted(headers.items()), prefix_header()])
    outputs = ["-MD", "-MF", str(folder / f"{_NAME}.d"), "-o", str(folder / f"{_NAME}.gch")]
    return Precompiled(
        key=hashlib.sha256(identity.encode()).hexdigest(),
        folder=folder,
        command=(*cxx, "-x", "c++-header", "-I", str(folder), *flags, str(folder / _NAME), *outputs),
    )
