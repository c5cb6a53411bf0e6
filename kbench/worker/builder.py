"""The process that compiles for a candidate: it alone may write the build cache."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kbench.protocol import Channel
from kbench.worker import confine
from kbench.worker.build.cache import Cache
from kbench.worker.build.make import build
from kbench.worker.build.processes import Confine
from kbench.worker.build.request import BuildRequest, BuildResult


def main(args: Mapping[str, Any], fds: list[int]) -> None:
    """Take one request, build it, answer."""
    channel = Channel(socket.socket(fileno=fds[0]))
    message = channel.receive()
    try:
        request = BuildRequest.from_json(message)
    except ValueError as error:
        result = BuildResult(ok=False, failure=f"no build request: {error}", transient=True)
    else:
        cache = Cache(Path(args["cache"]))
        result = build(request, cache, jobs=int(args["jobs"]), confine=_confine(args.get("confine"), cache))
    channel.send(result.to_json())
    channel.close()


def _confine(policy: Mapping[str, Any] | None, cache: Cache) -> Confine | None:
    """Hold compilers to what the candidate itself may read: its sources and flags are as hostile as it is."""
    if policy is None:
        return None
    readable = [*policy.get("readable", ()), str(cache.root)]
    return lambda folder: confine.confine(confine.Policy.from_json({**policy, "readable": readable, "scratch": str(folder), "gpu": False}))
