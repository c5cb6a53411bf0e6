"""The process that compiles for a candidate: it alone may write the build cache."""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kbench.protocol import Channel
from kbench.worker import confine
from kbench.worker.build import toolchain
from kbench.worker.build.cache import DEFAULT_LIMIT_BYTES, Cache
from kbench.worker.build.make import build
from kbench.worker.build.processes import Confine
from kbench.worker.build.request import BuildRequest, BuildResult

_FOLDER_FLAG = re.compile(r"-(?:I|L|isystem *)(/.*)")


def main(args: Mapping[str, Any], fds: list[int]) -> None:
    """Take one request, build it, answer. `confine` is the candidate's own policy, None where it is trusted."""
    channel = Channel(socket.socket(fileno=fds[0]))
    message = channel.receive()
    try:
        request = BuildRequest.from_json(message)
    except ValueError as error:
        result = BuildResult(ok=False, failure=f"no build request: {error}", transient=True)
    else:
        result = build(
            request,
            Cache(Path(args["cache"]), limit_bytes=args.get("cache_limit_bytes", DEFAULT_LIMIT_BYTES)),
            jobs=int(args["jobs"]),
            confine=_confine(args.get("confine"), request),
            capabilities=args.get("capabilities", ()),
        )
    channel.send(result.to_json())
    channel.close()


def _confine(policy: Mapping[str, Any] | None, request: BuildRequest) -> Confine | None:
    """Hold compilers to what the candidate itself may read, and the libraries it names: its sources and flags are as hostile as it is."""
    if policy is None:
        return None
    held = confine.Policy.from_json({**policy, "scratch": "", "libraries": list(_libraries(request))})
    held = replace(held, readable=(*held.readable, *_tools()))

    def confine_to(folder: Path) -> None:
        # The home of one compiler is no other's: what is in it is given to a user while others run.
        home = tempfile.mkdtemp(prefix="home.", dir=folder.parent)
        confine.confine(replace(held, scratch=Path(home), writable=(folder,)))
        os.chdir(folder)

    return confine_to


def _libraries(request: BuildRequest) -> Iterator[str]:
    """Folders of headers and libraries that a request names."""
    yield from request.extra_include_paths
    for flag in (*request.extra_cflags, *request.extra_cuda_cflags, *request.extra_ldflags):
        if found := _FOLDER_FLAG.fullmatch(flag):
            yield found[1]


def _tools() -> Iterator[Path]:
    """Where the compilers are, if that is no folder of the system's."""
    if (home := toolchain.current().cuda_home) is not None:
        yield home
    for name in (os.environ.get("CXX", ""), os.environ.get("NVCC_CCBIN", "")):
        if program := shutil.which(name):
            yield Path(program)
            yield Path(program).resolve().parent
