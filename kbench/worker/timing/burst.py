"""The judge's own clock: many calls in a row, from the moment their inputs exist until it has their outputs.

A side queues its calls behind a closed gate. Then the judge starts its clock, writes the inputs, opens the
gate, waits for the end and copies the outputs away. Nothing could be done before, since there was nothing to
do it on; what is done after is not in the copy, of which calls picked by chance are compared. What such a
burst takes beyond one without calls, which the reference's side makes, must agree with what the side reports.
"""

from __future__ import annotations

import select
import time
from dataclasses import dataclass, field

import torch

from kbench.worker import memory, tensors
from kbench.worker.session import CaseSession
from kbench.worker.timing import gate
from kbench.worker.timing.fresh import FreshSets

# For so long the judge asks without a pause whether the end has come, so often it looks whether the side has gone,
# and so long it sleeps between two questions afterwards.
_SPIN_S, _LOOK_S, _NAP_S = 5e-3, 1e-3, 20e-6


@dataclass(slots=True)
class Bursts:
    """What the bursts of one side took, by the judge's clock: `seconds` each; `queued` tells which queued everything in time."""

    seconds: list[float] = field(default_factory=list)
    queued: list[bool] = field(default_factory=list)


class BurstClock:
    """Runs bursts on one side over given sets of inputs."""

    def __init__(self, session: CaseSession, sets: FreshSets) -> None:
        self._session = session
        self._device = session.device
        layout = tensors.Layout()
        self.specs = [tensors.describe(args, place=layout.place, trusted=True) for args in sets.args]
        self._inputs = session.arena("inputs", layout.end_bytes)
        self._staged = torch.empty(layout.end_bytes, dtype=torch.uint8, device=self._device)
        self._gate = gate.Gate(session.page("gate").memory)
        self.write(sets)

    def write(self, sets: FreshSets) -> None:
        """Put other contents into the sets, where the side cannot see them yet."""
        self._staged.fill_(memory.POISON_BYTE)
        sets.write(self._staged, self.specs)

    def run(self, *, count: int, seed: int, limit_s: float, calls: bool = True) -> tuple[float, bool, torch.Tensor]:
        """Make one burst on the first `count` sets.

        Gives the seconds from before the inputs are there until the outputs are the judge's, whether all was queued
        by then, and the outputs.

        Without `calls`, the side hands over what the last burst gave, or zeros in its place.
        """
        peer, outputs = self._session.peer, self._session.arenas["outputs"]
        self._inputs.poison()
        outputs.poison()
        self._settle()
        self._gate.reset()
        request = peer.begin("time", "burst", args=self.specs[:count], seed=seed, calls=calls)
        queued = self._wait(gate.QUEUED, limit_s)
        started = time.perf_counter()
        self._inputs.memory[: len(self._staged)].copy_(self._staged)
        self._settle()
        self._gate.post(gate.OPEN)
        self._wait(gate.DONE, None)
        snapshot = outputs.memory.clone()
        self._settle()
        seconds = time.perf_counter() - started
        peer.finish(request, "time")
        return seconds, queued, snapshot

    def _wait(self, number: int, limit_s: float | None) -> bool:
        """Wait for a post; False after `limit_s`, or once the side has answered or gone."""
        started = looked = time.perf_counter()
        has_come, now_s = self._gate.has_come, time.perf_counter
        while not has_come(number):
            now = now_s()
            if limit_s is not None and now - started > limit_s:
                return False
            if now - looked > _LOOK_S:
                looked = now
                if select.select([self._session.peer.channel], [], [], 0)[0]:
                    return has_come(number)
            if now - started > _SPIN_S:
                time.sleep(_NAP_S)
        return True

    def _settle(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
