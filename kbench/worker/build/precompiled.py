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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kbench.worker.build import toolchain, user_files
from kbench.worker.build.cache import Cache
from kbench.worker.build.headers import light_headers, prefix_header
from kbench.worker.build.language import Unit
from kbench.worker.build.processes import Finished
from kbench.worker.build.request import BuildRequest, BuildResult

_NAME, _COMPILED, _DEPENDENCIES = "prefix.h", "prefix.h.gch", "prefix.h.d"
# Anything before this line may change what the headers mean.
_FIRST_LINE = "#include <torch/extension.h>\n"
_OWN_NAME = "-DTORCH_EXTENSION_NAME="
# Flags that a precompiled header depends on by their text alone: they name no file and load no plug-in.
_PLAIN_FLAG = re.compile(r"-O\w*|-g\d?|-w|-pthread|-W[\w=+-]*|-std=[\w+]+|-m[\w.=+-]+|-f(?!plugin|profile)[a-z][\w-]*(?:=[\w-]+)?|-D\w+(?:=[\w.]+)?")
# Headers of torch's functions; only their trimmed form may be in, for sources come with that.
_FUNCTION_HEADER = re.compile(r"/ATen/ops/\w+(?<!_ops)(?<!_native)(?<!_dispatch)\.h$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Precompiled:
    """The header for one set of flags: its text, with the light headers that it includes, and how it is compiled."""

    key: str
    texts: Mapping[str, str]
    compiler: tuple[str, ...]
    flags: tuple[str, ...]

    def copied_to(self, folder: Path, cache: Cache) -> Path | None:
        """Put a finished one where the compilers of one build find it; what a source includes first, None where there is none.

        A copy, for they run on a stranger's flags and may do in the folder of their build what they want.
        """
        artifact = cache.artifact(self.key)
        if artifact is None:
            return None
        self._write(folder)
        shutil.copyfile(artifact, folder / _COMPILED)
        return folder / _NAME

    def is_worth_making(self, cache: Cache) -> bool:
        """Whether these flags were seen before and nobody has tried yet."""
        return cache.was_wanted(self.key) and cache.lookup(self.key) is None

    def command(self, folder: Path) -> list[str]:
        """The call that makes it, in a folder that no stranger's compiler writes to."""
        self._write(folder)
        outputs = ["-MD", "-MF", str(folder / _DEPENDENCIES), "-o", str(folder / _COMPILED)]
        return [*self.compiler, "-x", "c++-header", "-I", str(folder), *self.flags, str(folder / _NAME), *outputs]

    def keep(self, folder: Path, cache: Cache, end: Finished) -> None:
        """Store what the call made, or that it cannot be made; the caller holds the lock of the key."""
        if end.is_transient:
            return
        own = os.path.realpath(folder)
        untrimmed = [path for path in user_files.listed(folder / _DEPENDENCIES) if _FUNCTION_HEADER.search(path) and not path.startswith(own)]
        is_good = end.code == 0 and not untrimmed
        cache.store(BuildResult(ok=is_good, key=self.key), {}, folder / _COMPILED if is_good else None)

    def _write(self, folder: Path) -> None:
        for name, text in self.texts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)


def precompiled(request: BuildRequest, unit: Unit) -> Precompiled | None:
    """The precompiled header that fits a unit; None where none may be used."""
    cxx, include = unit.commands.cxx, toolchain.current().include
    is_gcc = re.search(r"g\+\+|gcc", os.path.basename(os.path.realpath(shutil.which(cxx[0]) or ""))) is not None
    is_plain = not request.extra_include_paths and not request.environment and all(_PLAIN_FLAG.fullmatch(flag) for flag in request.extra_cflags)
    headers = light_headers(["pybind11::module"], include)
    if not is_gcc or not is_plain or headers is None or not unit.source.text.startswith(_FIRST_LINE):
        return None
    texts = {**headers, _NAME: prefix_header()}
    flags = tuple(flag for flag in unit.commands.cflags if not flag.startswith(_OWN_NAME))
    identity = json.dumps([toolchain.current().identity, cxx, flags, sorted(texts.items())])
    return Precompiled(key=hashlib.sha256(identity.encode()).hexdigest(), texts=texts, compiler=cxx, flags=flags)
