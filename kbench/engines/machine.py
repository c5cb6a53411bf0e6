"""This machine as all lanes share it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from kbench.engines.gate import Gate, Lease
from kbench.engines.job import Events, Options
from kbench.errors import MachineError
from kbench.protocol import Closed, ProtocolError
from kbench.records import Candidate, Environment, is_gpu
from kbench.sandbox import Scratch, Zygote, channel_pair

# A worker of ours that has hung up is about to say why, and to end.
LAST_WORDS_S = 2.0


class Machine:
    """How to run and whom to tell, who forks, what this machine is, who may use which device, and what was built for whom."""

    def __init__(self, options: Options, events: Events) -> None:
        self.options = options
        self.events = events
        self.zygote = Zygote(warm_s=options.warm_s)
        self.facts: dict[str, Any] = {}
        self._gate = Gate()
        self._leases: dict[str, Lease] = {}
        self._built: dict[Path, set[Path]] = {}

    async def start(self) -> None:
        """Start the zygote and find out what this machine is.

        Raises:
            MachineError: torch cannot be imported, say.
        """
        await self.zygote.start()
        channel, fd = channel_pair()
        scratch = Scratch()
        folder = str(scratch.path)
        args = {"scratch": folder, "visible": os.environ.get("CUDA_VISIBLE_DEVICES"), "limits": {"scratch": folder}}
        worker = self.zygote.spawn("probe", args, [fd])
        try:
            self.facts = await channel.receive()
        except (Closed, ProtocolError):
            ending = await worker.end(grace_s=LAST_WORDS_S)
            words = worker.output_tail.strip().splitlines()
            raise MachineError(
                f"the machine could not be probed: {ending.describe()}; {words[-1] if words else ''}",
                hint="run `kbench doctor`",
            ) from None
        finally:
            channel.close()
            if worker.is_lost:
                scratch.remove()
        if self.options.sandbox == "require" and self.facts["sandbox"].startswith("unsandboxed"):
            raise MachineError(f"`--sandbox require`: {self.facts['sandbox']}", hint="leave it out to run without, on code that you trust")

    async def close(self) -> None:
        """End every process."""
        await self.zygote.close()

    def environment(self, device: str) -> Environment:
        """Where results of a device come from."""
        facts = self.facts
        return Environment(
            gpu=self.gpu_facts(device).get("name", ""),
            driver=facts["driver"],
            cuda=facts["cuda"],
            torch=facts["torch"],
            python=facts["python"],
            host=facts["host"],
            cpu=facts["cpu"],
        )

    def gpu_facts(self, device: str) -> dict[str, Any]:
        """What is known of the GPU of a device; nothing for a CPU."""
        if not is_gpu(device):
            return {}
        found: dict[str, Any] = self.facts["gpus"][int(device.partition(":")[2] or 0)]
        return found

    @contextlib.asynccontextmanager
    async def beside_others(self, device: str) -> Any:
        """Hold a device for verifying."""
        async with self._gate.shared(), self._lease(device).hold(alone=False):
            yield

    @contextlib.asynccontextmanager
    async def alone(self, device: str) -> Any:
        """Hold a device for timing."""
        async with self._gate.exclusive(device), self._lease(device).hold(alone=True):
            yield

    def _lease(self, device: str) -> Lease:
        name = self.gpu_facts(device).get("uuid", "cpu")
        if name not in self._leases:
            self._leases[name] = Lease(name, tell=self.events.note)
        return self._leases[name]

    def built_for(self, candidate: Candidate) -> frozenset[Path]:
        """The entries of the build cache that are known to be a candidate's: it may read them, and no others."""
        return frozenset(path for path in self._built.get(candidate.source, ()) if path.is_dir())

    def remember_built_for(self, candidate: Candidate, entry: Path) -> None:
        """An entry of the build cache is this candidate's."""
        self._built.setdefault(candidate.source, set()).add(entry)
