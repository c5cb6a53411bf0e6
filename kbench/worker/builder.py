"""The process that compiles for a candidate: it alone may write the build cache."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kbench.protocol import Channel
from kbench.worker.build.cache import Cache
from kbench.worker.build.make import build
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
        result = build(request, Cache(Path(args["cache"])), jobs=int(args["jobs"]))
    channel.send(result.to_json())
