"""A judge's conversation with a worker of this very process, whose answers a test may alter."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kbench.claims import Claims
from kbench.records import Case
from kbench.worker.candidate import Worker
from kbench.worker.evidence import Tolerance
from kbench.worker.reference import CaseReference, Reference
from kbench.worker.session import CaseSession, forged
from kbench.worker.timing.pairs import CaseTimer

REFERENCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2 + 1

def get_inputs():
    return [torch.randn(8, 8)]

def get_init_inputs():
    return []
"""
SETTINGS = {"precision": 0.01, "budget_s": 60.0, "repeat": 40, "threads": 1, "verified_error": 0.0}
CPU = torch.device("cpu")

Alter = Callable[[dict[str, Any]], dict[str, Any]]


class InProcessPeer:
    """What `session.Peer` is to a judge, without a process; `alter` changes the answers to `slot`."""

    def __init__(self, factory: Any, alter: Alter) -> None:
        ours, self._theirs = socket.socketpair()
        self._worker = Worker({"device": "cpu", "threads": 1, "wrap": ""}, ours)
        self._worker.factory = factory
        self._ours = ours
        self._alter = alter
        self.pid = 2**22  # no process has it
        self._core: int | None = None

    def ask(self, stage: str, op: str, *, fds: list[int] | None = None, **arguments: Any) -> Claims:
        answer = self._worker.answer({"op": op, **arguments}, [os.dup(fd) for fd in fds or []])
        assert answer["ok"], answer
        if op == "wake":
            self._core = arguments["core"]
        return Claims(self._alter({**answer, "asked_core": self._core}) if op == "slot" else answer, forged)

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()


def time_alike(
    folder: Path, alter: tuple[Alter, Alter], *, source: str = REFERENCE, timer: type[CaseTimer] = CaseTimer, **settings: Any
) -> dict[str, Any]:
    """Time a model against itself, with the answers of reference and candidate altered; what the judge concludes."""
    path = folder / "reference.py"
    path.write_text(source)
    reference = Reference(path, CPU, root_seed=1, label="t")
    tolerance = Tolerance(by_dtype={}, default=(1e-4, 1e-4), allow_nan=False)
    case = CaseReference(reference, Case(), trials=2, tolerance=tolerance)
    peers = [InProcessPeer(reference.module.Model, change) for change in alter]
    sessions = [CaseSession(peer, case, CPU) for peer in peers]  # type: ignore[arg-type]
    try:
        for session in sessions:
            session.construct()
        return timer(case, sessions[0], sessions[1], {**SETTINGS, **settings}).run()
    finally:
        for session in sessions:
            session.close()
        for peer in peers:
            peer.close()
