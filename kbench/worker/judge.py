"""The process that decides: it runs the reference, makes the inputs, holds the seeds, and compares.

It serves all candidates of a task on one device. A candidate is another process at the end of a
channel; whatever that says is a claim, parsed strictly. Nothing of a candidate's runs here.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from kbench.protocol import Channel, Closed, Message
from kbench.records import Case, CaseVerdict, Reason, Status
from kbench.worker import contracts, cudart, handover
from kbench.worker.evidence import Tolerance
from kbench.worker.reference import CaseReference, Reference, ReferenceFault, as_fault
from kbench.worker.session import CandidateFault, CandidateGone, CaseSession, Peer
from kbench.worker.timing import ceilings
from kbench.worker.timing.ceilings import Ceilings
from kbench.worker.timing.examine import CaseExaminer
from kbench.worker.timing.pairs import CaseTimer
from kbench.worker.timing.work import Work, count_by_running


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What the parent says of a task when it starts its judge."""

    task: str
    reference: str
    device: str
    seed: int
    trials: int
    tolerance: Tolerance
    cases: tuple[Case, ...]
    threads: int
    beyond_inputs: bool
    strict_float32: bool
    cache: str
    driver: str
    draws: str
    cuda_on_cpu: bool = False

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Opening:
        """Read it from the parent's message."""
        fields = dict(message["opening"])
        tolerance = fields.pop("tolerance")
        cases = fields.pop("cases")
        return cls(
            **fields,
            tolerance=Tolerance(
                by_dtype={name: (pair[0], pair[1]) for name, pair in tolerance["by_dtype"].items()},
                default=(tolerance["default"][0], tolerance["default"][1]),
                allow_nan=tolerance["allow_nan"],
            ),
            cases=tuple(Case(**{**case, "devices": tuple(case["devices"])}) for case in cases),
        )


def main(args: Mapping[str, Any], fds: list[int]) -> None:
    """Serve the parent until it hangs up."""
    channel = Channel(socket.socket(fileno=fds[0]), accept_fds=True)
    os.environ["CUDA_VISIBLE_DEVICES"] = args["gpu"]
    judge = Judge(Opening.from_message(args), channel)
    try:
        while True:
            request = channel.receive()
            channel.send(judge.answer(request, channel.take_fds()))
    except Closed:
        os._exit(0)


class Judge:
    """The judge of one task on one device."""

    def __init__(self, opening: Opening, parent: Channel) -> None:
        self.opening = opening
        self.device = torch.device(opening.device)
        self._parent = parent
        self._reference: Reference | None = None
        self._cases: dict[str, CaseReference | ReferenceFault] = {}
        self._candidate: Peer | None = None
        self._peers: dict[str, Peer] = {}
        self._errors: dict[str, float | None] = {}
        self._timed: dict[str, dict[str, Any]] = {}
        self._ceilings: Ceilings | None = None
        self._kernels: dict[str, dict[str, Any]] = {}
        self._told = ""
        torch.set_num_threads(opening.threads)
        if self.device.type == "cuda":
            # While the candidate's process does the same.
            cudart.begin(self.device)

    def answer(self, request: Message, fds: list[int]) -> Message:
        """Do one request of the parent's; what goes wrong here is `error`, never the candidate's fault."""
        operations = {
            "verify": self.verify,
            "time": self.time,
            "examine": self.examine,
            "calls": self.calls,
            "contract": self.contract,
            "close": self.close,
        }
        self._told = ""
        try:
            return operations[request["op"]](request, fds)
        except (torch.cuda.OutOfMemoryError, MemoryError) as error:
            return {"status": Status.ERROR, "reason": Reason.MACHINE, "detail": f"out of memory in the judge: {error}"}
        except ReferenceFault as error:
            return {"status": Status.ERROR, "reason": Reason.REFERENCE, "detail": str(error)}

    def tell(self, stage: str) -> None:
        """Let the parent know what is going on, for its deadline and its progress.

        Once: a parent woken at every slot would run beside it.
        """
        if stage != self._told:
            self._told = stage
            self._parent.send({"event": "stage", "stage": stage})

    def _peer(self, fd: int) -> Peer:
        return Peer(fd, self.tell, cuda_on_cpu=self.opening.cuda_on_cpu)

    def close(self, _request: Message, _fds: list[int]) -> Message:
        """Let go of the candidate."""
        if self._candidate is not None:
            self._candidate.channel.close()
            self._candidate = None
        return {}

    def verify(self, request: Message, fds: list[int]) -> Message:
        """Judge one candidate in every case asked for; its process stays, for the clock."""
        peer = self._candidate = self._peer(fds[0])
        cases: list[CaseVerdict] = []
        fault: CandidateFault | None = None
        try:
            peer.greet()
            self._load(peer, request)
            for case in self.opening.cases:
                if case.name in request["cases"]:
                    verdict = self._verify_case(peer, case, baseline=request["baseline"])
                    cases.append(verdict)
                    self._errors[case.name] = verdict.max_abs_error
        except CandidateFault as error:
            fault = error
        except CandidateGone as error:
            return {"gone": error.stage, "cases": _plain(cases), "sandbox": peer.sandbox}
        answer: Message = {"cases": _plain(cases), "sandbox": peer.sandbox}
        if fault is not None:
            answer |= {"status": fault.status, "reason": fault.reason, "detail": fault.detail, "log": fault.log}
        return answer

    def contract(self, request: Message, fds: list[int]) -> Message:
        """Ask contracts of a candidate in a process of its own, up to the first that is broken."""
        peer = self._peer(fds[0])
        cases = [self.case_reference(case) for case in self.opening.cases if case.name in request["cases"]]
        try:
            peer.greet()
            self._load(peer, request)
        except (CandidateGone, CandidateFault) as error:
            return {"checks": [], "detail": str(error)}
        session = CaseSession(peer, cases[0], self.device)
        results = contracts.outcome(session, cases, list(request["names"]))
        session.close()
        peer.channel.close()
        return {"checks": [dataclasses.asdict(result) for result in results]}

    def calls(self, request: Message, _fds: list[int]) -> Message:
        """Write inputs of the cases asked for into a folder; what a process that nobody talks to is to call."""
        wanted = [self.case_reference(case) for case in self.opening.cases if case.name in request["cases"]]
        return {"calls": handover.write_calls(wanted, Path(request["folder"]))}

    def _load(self, peer: Peer, request: Message) -> None:
        # A broken reference is found before anyone runs a candidate.
        self._task()
        peer.ask("load", "load", path=request["path"], module=request["module"], model=request["model"])

    def _task(self) -> Reference:
        if self._reference is None:
            self.tell("reference")
            opening = self.opening
            self._reference = Reference(Path(opening.reference), self.device, root_seed=opening.seed, label=opening.task, cuda_on_cpu=opening.cuda_on_cpu)
        return self._reference

    def case_reference(self, case: Case) -> CaseReference:
        """The reference in one case, made and checked once.

        Raises:
            ReferenceFault: it is broken.
        """
        if case.name not in self._cases:
            self.tell(f"reference {case.name}")
            try:
                opening = self.opening
                # Whatever a task gives, it is not to end the judge: others are to be told what is wrong with it.
                with as_fault("it cannot be judged:"):
                    self._cases[case.name] = CaseReference(
                        self._task(),
                        case,
                        trials=opening.trials,
                        tolerance=opening.tolerance,
                        beyond_inputs=opening.beyond_inputs,
                        strict_float32=opening.strict_float32,
                        distribution_cases=len(opening.cases) if opening.draws == "distribution" else 0,
                    )
            except ReferenceFault as error:
                self._cases[case.name] = error
        found = self._cases[case.name]
        if isinstance(found, ReferenceFault):
            raise found
        return found

    def _verify_case(self, peer: Peer, case: Case, *, baseline: bool) -> CaseVerdict:
        started = time.monotonic()
        try:
            reference = self.case_reference(case)
        except ReferenceFault as error:
            return CaseVerdict(case=case.name, status=Status.ERROR, reason=Reason.REFERENCE, detail=str(error))
        session = CaseSession(peer, reference, self.device, baseline=baseline)
        verdict = session.verify()
        session.close()
        return dataclasses.replace(verdict, seconds=time.monotonic() - started)

    def time(self, request: Message, fds: list[int]) -> Message:
        """Time the verified candidate, or a baseline, against the reference in one case."""

        def measure(case: Case, reference: CaseReference, sides: list[CaseSession]) -> Message:
            settings = {**request["settings"], "verified_error": self._errors.get(case.name)}
            timing = self._timed[case.name] = CaseTimer(reference, sides[0], sides[1], settings, self._roof(reference, request)).run()
            return {"timing": timing}

        return self._with_sides("reference", request, fds, measure)

    def examine(self, request: Message, fds: list[int]) -> Message:
        """Measure what may leave a process the slower for it, after everything was timed, in one timed case."""

        def measure(case: Case, reference: CaseReference, sides: list[CaseSession]) -> Message:
            examiner = CaseExaminer(reference, sides[0], sides[1], {**request["settings"], "verified_error": self._errors.get(case.name)})
            return {"examined": examiner.examine(self._timed[case.name], self._kernels.setdefault(case.name, {}))}

        return self._with_sides("examined reference", request, fds, measure)

    def _roof(self, reference: CaseReference, request: Message) -> Ceilings | None:
        """What this GPU can do at most, the case's work being known then; None on a CPU."""
        if self.device.type != "cuda":
            return None
        if self._ceilings is None:
            self._ceilings = ceilings.of(self.device, Path(self.opening.cache), self.opening.driver)
        if reference.work is None:
            counted = request.get("work")
            reference.work = (
                Work(**counted)
                if counted
                else count_by_running(
                    reference.reference.construct(reference.case, reference.init), reference.reference.inputs(reference.case, "timed", 0)
                )
            )
        return self._ceilings

    def _with_sides(
        self,
        name: str,
        request: Message,
        fds: list[int],
        measure: Callable[[Case, CaseReference, list[CaseSession]], Message],
    ) -> Message:
        """Do something with both sides of a case; the reference's process is called `name`, and is new where `fds` has one."""
        case = next(case for case in self.opening.cases if case.name == request["case"])
        peer = self._candidate
        assert peer is not None
        reference = self.case_reference(case)
        sides: list[CaseSession] = []
        fresh: list[Peer] = []
        try:
            if "candidate" in request:
                # Both sides are processes for this once.
                fresh = [self._peer(fd) for fd in fds]
                peer = fresh[1]
            if "reference_module" in request:
                opened = fresh[0] if fresh else self._peer(fds[0])
                if not fresh:
                    self._peers[name] = opened
                opened.greet()
                opened.ask("load", "load", path=self.opening.reference, module=request["reference_module"], model="Model")
            if fresh:
                peer.greet()
                peer.ask("load", "load", **request["candidate"])
            for side in (fresh[0] if fresh else self._peers[name], peer):
                session = CaseSession(side, reference, self.device, baseline=request["baseline"])
                session.construct()
                sides.append(session)
            return measure(case, reference, sides)
        except CandidateFault as error:
            return {"status": error.status, "reason": error.reason, "detail": error.detail, "log": error.log}
        except CandidateGone as error:
            return {"gone": error.stage}
        finally:
            for session in sides:
                session.close()
            for other in fresh:
                other.channel.close()


def _plain(cases: list[CaseVerdict]) -> list[dict[str, Any]]:
    """As JSON: infinities, which JSON has not, become the text `inf`."""
    return [
        {
            **dataclasses.asdict(case),
            "max_abs_error": _number(case.max_abs_error),
            "max_rel_error": _number(case.max_rel_error),
        }
        for case in cases
    ]


def _number(value: float | None) -> float | str | None:
    return value if value is None or abs(value) < float("inf") else str(value)
