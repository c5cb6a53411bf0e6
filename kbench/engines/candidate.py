"""A candidate's process, or one that runs the reference for the clock, seen from the engine."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any

from kbench.engines.machine import Machine
from kbench.engines.service import BuildService, sources_of
from kbench.records import CUDA_ON_CPU, Candidate, is_gpu
from kbench.sandbox import Ending, ParentChannel, Scratch, Worker, channel_pair, direct_pair

# A candidate that has hung up is, as a rule, about to end.
GONE_S = 0.5
# A GPU's context takes a fraction of a second; what takes longer is not waited for.
_READY_S = 30.0
MAX_PROCESSES = 256
# Processes and threads together: a pool of threads for each of many libraries.
_MAX_TASKS = 2048 + 16 * (os.cpu_count() or 1)


class CandidateProcess:
    """A candidate's process and the service that builds for it."""

    def __init__(
        self,
        machine: Machine,
        candidate: Candidate,
        *,
        device: str,
        threads: int,
        hide_gpu: bool,
        trusted: bool = False,
        lines: bool = False,
    ) -> None:
        self._machine = machine
        self._candidate = candidate
        self._trusted = trusted or candidate.name.startswith("@")
        self._args = {
            "device": "cuda:0" if is_gpu(device) else "cpu",
            "cuda_on_cpu": device == CUDA_ON_CPU,
            "threads": threads,
            "gpu": "" if hide_gpu else visible(device),
            "interpret": device == CUDA_ON_CPU or (candidate.language == "triton" and device == "cpu"),
            "wrap": candidate.name if candidate.name.startswith("@") else "",
            "lines": lines,
        }
        self.service = BuildService(machine, candidate, trusted=self._trusted)
        self._scratch: Scratch | None = None
        self._worker: Worker | None = None
        self._judge_fd: int | None = None

    def open(self) -> ParentChannel:
        """Start it with a channel to this process."""
        channel, fd = channel_pair()
        self._start(fd)
        return channel

    def start_for_judge(self) -> None:
        """Start it with a channel to a judge that is still to come."""
        self._judge_fd, theirs = direct_pair()
        self._start(theirs)

    def open_for_judge(self) -> int:
        """Start it unless it runs; the judge's end of its channel, which is the caller's from now on."""
        if self._judge_fd is None:
            self.start_for_judge()
        assert self._judge_fd is not None
        fd, self._judge_fd = self._judge_fd, None
        return fd

    async def ready(self) -> None:
        """Wait until it has its GPU's context and listens, or has ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_READY_S):
                await self.service.ready.wait()

    def _start(self, fd: int) -> None:
        scratch = self._scratch = Scratch()
        entries = self._machine.built_for(self._candidate)
        channel, service_fd = channel_pair()
        args: dict[str, Any] = {**self._args, "limits": self._limits(scratch.path)}
        if not self._trusted:
            args["confine"] = self._policy(scratch, entries)
        self.service.start(channel, scratch, entries)
        self._worker = self._machine.zygote.spawn("candidate", args, [fd, service_fd])

    def _limits(self, scratch: Path) -> dict[str, Any]:
        """What it and all that it starts may use; the keeper makes and removes the scratch folder, too."""
        return {
            "memory_bytes": self._machine.options.memory_bytes,
            "max_processes": MAX_PROCESSES,
            # Elsewhere the limit of its own user holds.
            "max_tasks": _MAX_TASKS if self._args["device"] != "cpu" else None,
            "scratch": str(scratch),
        }

    def _policy(self, scratch: Scratch, entries: frozenset[Path]) -> dict[str, Any]:
        """What the candidate may touch: its own file, a folder of its own name beside it, and what was built for it."""
        return {
            "scratch": str(scratch.own),
            "readable": [str(path) for path in (*sources_of(self._candidate), scratch.given, *entries)],
            "hidden": [str(path) for path in (*self._machine.options.hidden, self._machine.options.cache)],
            "gpu": self._args["device"] != "cpu",
        }

    def may_read(self) -> list[str]:
        """The candidate's own files, and what is known to be built for it."""
        return [str(path) for path in (*sources_of(self._candidate), *self._machine.built_for(self._candidate))]

    @property
    def output_tail(self) -> str:
        """The last of what it printed."""
        return self._worker.output_tail if self._worker else ""

    async def close(self, *, grace_s: float = 0.0) -> Ending:
        """End it and all that it started; within `grace_s` it may end by itself, which tells more."""
        ending = Ending()
        if self._worker is not None:
            ending = await self._worker.end(grace_s=grace_s)
        self.drop()
        await self.service.ended()
        return ending

    def drop(self) -> None:
        """Forget it without waiting for its end."""
        if self._judge_fd is not None:
            os.close(self._judge_fd)
            self._judge_fd = None
        self.service.drop()
        if self._scratch is not None and (self._worker is None or self._worker.is_lost):
            self._scratch.remove()


def visible(device: str) -> str:
    """The value of CUDA_VISIBLE_DEVICES under which a device is the only one: none for a CPU."""
    if not is_gpu(device):
        return ""
    index = int(device.partition(":")[2] or 0)
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return chosen.split(",")[index] if chosen else str(index)


def load_request(candidate: Candidate) -> dict[str, str]:
    """What a worker needs to load a candidate."""
    return {
        "path": str(candidate.source),
        "module": f"kbench_candidate_{candidate.source.stem}",
        "model": "Model" if candidate.name.startswith("@") else "ModelNew",
    }
