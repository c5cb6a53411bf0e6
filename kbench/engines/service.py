"""The service that builds for one candidate's process."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from kbench.claims import Claims
from kbench.engines.machine import LAST_WORDS_S, Machine
from kbench.protocol import Closed, Message, ProtocolError, digest
from kbench.records import Build, Candidate, Kernel
from kbench.sandbox import Ending, ParentChannel, Scratch, channel_pair

# Two compilers at a time, each with some programs of its own.
_MAX_BUILD_PROCESSES = 128
# What a record keeps of a name that a candidate gave.
_NAME_LIMIT = 200


class BuildService:
    """Has what a candidate's process asks for built by processes that it cannot touch."""

    def __init__(self, machine: Machine, candidate: Candidate, *, trusted: bool) -> None:
        self._machine = machine
        self._candidate = candidate
        self._trusted = trusted
        # The candidate's process has its GPU's context and listens, or has ended.
        self.ready = asyncio.Event()
        # What was built for it, by the digest of what it asked for.
        self.built: dict[str, Message] = {}
        # What the record says of each, good or not.
        self.records: list[Build] = []
        # Why this machine cannot build what it asked for at all, if so.
        self.refused = ""
        self._channel: ParentChannel | None = None
        self._serving: asyncio.Task[None] | None = None
        # Builders that are about to end.
        self._ends: set[asyncio.Task[Ending]] = set()

    def start(self, channel: ParentChannel, scratch: Scratch, entries: frozenset[Path]) -> None:
        """Serve a process whose folder `scratch` is, and that may read these entries of the build cache where they lie."""
        self._channel = channel
        self._serving = asyncio.create_task(self._serve(channel, scratch, entries))

    def drop(self) -> None:
        """Stop without waiting."""
        if self._serving is not None:
            self._serving.cancel()
        if self._channel is not None:
            # A task that was cancelled before it began closes nothing.
            self._channel.close()

    async def ended(self) -> None:
        """Wait until nothing of it runs, builders included."""
        if self._serving is not None:
            await asyncio.wait({self._serving})
        if self._ends:
            await asyncio.wait(self._ends)

    async def _serve(self, channel: ParentChannel, scratch: Scratch, entries: frozenset[Path]) -> None:
        try:
            while True:
                request = await channel.receive()
                if request.get("op") == "ready":
                    self.ready.set()
                    continue
                started = time.monotonic()
                name = Claims(request).text("name", _NAME_LIMIT)
                built = await self._build(request, scratch)
                self.refused = self.refused or str(built.get("refused", ""))
                if built.get("ok"):
                    self.built[digest(request)] = built
                answer = self._given(built, scratch, entries)
                if built.get("ok") and not answer.get("ok"):
                    # Somebody emptied the cache in between.
                    answer = self._given(await self._build(request, scratch), scratch, entries)
                await channel.send(answer)
                self.records.append(_build_from(name, built, wait_s=time.monotonic() - started))
        except (ProtocolError, ValueError, RecursionError):
            # It has gone, or asks for what cannot even be passed on.
            pass
        finally:
            self.ready.set()
            channel.close()

    async def _build(self, request: Message, scratch: Scratch) -> Message:
        channel, fd = channel_pair()
        args: dict[str, Any] = {
            "cache": str(self._machine.options.cache),
            "cache_limit_bytes": self._machine.options.cache_limit_bytes,
            "jobs": 2,
            "capabilities": [gpu["capability"] for gpu in self._machine.facts["gpus"]],
            "limits": {"memory_bytes": self._machine.options.memory_bytes, "max_processes": _MAX_BUILD_PROCESSES},
        }
        if not self._trusted:
            # Compilers run on the candidate's sources and flags: they may read what it may.
            args["confine"] = {
                "readable": [str(path) for path in (*sources_of(self._candidate), scratch.own)],
                "hidden": [str(path) for path in (*self._machine.options.hidden, self._machine.options.cache)],
            }
        builder = self._machine.zygote.spawn("builder", args, [fd])
        try:
            await channel.send(request)
            return await channel.receive()
        except (Closed, ProtocolError):
            ending = await builder.end(grace_s=LAST_WORDS_S)
            return {"ok": False, "failure": f"the compiler's process ended: {ending.describe()}", "log": builder.output_tail}
        finally:
            channel.close()
            # Nobody waits for that: what it made is there.
            end = asyncio.create_task(builder.end())
            self._ends.add(end)
            end.add_done_callback(self._ends.discard)

    def _given(self, built: Message, scratch: Scratch, entries: frozenset[Path]) -> Message:
        """Put what was built where this process may read it; the next one of the candidate may read it where it lies."""
        if not built.get("ok") or self._trusted:
            return built
        path = Path(built["path"])
        self._machine.remember_built_for(self._candidate, path.parent)
        # An entry that was built again meanwhile is not the one that this process may read.
        if path.parent in entries and built.get("cached"):
            return built
        try:
            return {**built, "path": str(scratch.give(path))}
        except OSError as error:
            return {"ok": False, "failure": f"what was built cannot be handed over: {error}", "transient": True}


def sources_of(candidate: Candidate) -> list[Path]:
    """A candidate's own files: the one that was discovered, and the folder of its name beside it."""
    source = candidate.source.resolve()
    return [path for path in (source, source.with_suffix("")) if path.exists()]


def _build_from(name: str, answer: Message, *, wait_s: float) -> Build:
    """What is worth knowing of a build: the name is the candidate's, the answer a builder's."""
    return Build(
        name=name,
        ok=bool(answer.get("ok")),
        cached=bool(answer.get("cached")),
        headers=str(answer.get("headers", "")),
        seconds=float(answer.get("seconds", 0.0)),
        wait_s=wait_s,
        kernels=tuple(Kernel(**fields) for fields in answer.get("kernels", ())),
    )
