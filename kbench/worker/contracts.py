"""What a user's program may do with a model besides calling it plainly: is the candidate right then, too?

Each contract is one question, asked by calls that are compared with the reference like any other trial's. They run in
a process of their own, and after each that is broken in a new one: what broke it (a load at an address that is not
aligned, say) may have left a GPU's context unusable. To add one: a method here and its name in `CONTRACTS` (and in `config.CONTRACTS`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch

from kbench.records import CheckResult, Status, contract
from kbench.worker import tensors
from kbench.worker.reference import CaseReference, ReferenceFault, Trial
from kbench.worker.session import CandidateFault, CandidateGone, CaseSession

# What lies in the gaps of a strided input: every float dtype reads it as NaN, integers as -1.
_GAP = 0xFF
_OTHER_CASE_BYTES = 64 * 2**20


class _Skip(Exception):
    """The question cannot be asked here; the text says why."""


class Misaligned(tensors.Layout):
    """Places every tensor one element past where it would be aligned."""

    def place(self, tensor: torch.Tensor) -> int:
        """See `tensors.Layout`."""
        size = int(tensor.element_size())
        count = tensors.span_elements(list(tensor.shape), list(tensor.stride()))
        return self.reserve((count + 1) * size) + size


class Contracts:
    """Asks one candidate in one case; `cases` are all of the task's that were verified."""

    def __init__(self, session: CaseSession, cases: list[CaseReference]) -> None:
        self._session = session
        self._reference = session.reference
        self._cases = cases
        self._trial = next(iter(self._reference.trials()))

    def results(self, names: Iterable[str]) -> Iterator[CheckResult]:
        """The result of each contract in turn, up to the first that is broken: what broke it may have broken more."""
        for name in names:
            started = time.monotonic()
            status = Status.PASS
            try:
                if self._reference.stateful:
                    raise _Skip("the reference keeps state between calls")
                detail = CONTRACTS[name](self)
                status = Status.FAIL if detail else Status.PASS
            except _Skip as skip:
                status, detail = Status.SKIP, str(skip)
            except CandidateFault as fault:
                status, detail = Status.FAIL, fault.detail
            except CandidateGone:
                status, detail = Status.FAIL, "its process ended"
            yield CheckResult(name=contract(name), status=status, detail=detail, seconds=time.monotonic() - started)
            if status is Status.FAIL:
                return

    def _compare(self, trial: Trial, way: str = "plain", *, rehearsal: list[Any] | None = None) -> str:
        """What is wrong with one call; empty where nothing is."""
        failure = self._session.failure(trial, way=way, rehearsal=rehearsal)
        return f"{failure.name}: {failure.detail}" if failure else ""

    def stream(self) -> str:
        """On a stream that is not the default one, after calls there on other inputs."""
        self._need_cuda()
        return self._compare(self._trial, "stream", rehearsal=self._other_inputs())

    def graph(self) -> str:
        """Captured into a CUDA graph on other inputs, and replayed on those that came after the capture."""
        self._need_cuda()
        return self._compare(self._trial, "graph", rehearsal=self._other_inputs())

    def strided(self) -> str:
        """On inputs of the same values that are not contiguous."""
        args = tensors.map_tensors(self._trial.args, _strided)
        if all(tensor.is_contiguous() for tensor in tensors.tensors_in(args)):
            raise _Skip("no input has two elements")
        return self._compare(self._reference.trial_on(args))

    def misaligned(self) -> str:
        """On inputs at addresses that are multiples of their element's size only, as those of a slice are."""
        if not tensors.tensors_in(self._trial.args):
            raise _Skip("no input is a tensor")
        self._session.layout = Misaligned
        try:
            return self._compare(self._trial)
        finally:
            self._session.layout = tensors.Layout

    def sizes(self) -> str:
        """On odd and empty sizes: those of the task's cases, which were verified."""
        found = []
        for case in self._cases:
            sizes = [size for tensor in tensors.tensors_in(next(iter(case.trials())).args) for size in tensor.shape]
            if any(size == 0 or (size > 1 and size % 2) for size in sizes):
                found.append(case.case.name)
        if not found:
            raise _Skip("no case of the task has odd or empty sizes")
        return ""

    def instances(self) -> str:
        """Beside a second instance with other weights: each answers by its own."""
        weights = self._reference.other_weights()
        trial = self._reference.trial_on(self._trial.args, weights=weights or None)
        before = self._compare(self._trial)
        with self._session.second_instance(weights):
            second = self._compare(trial)
        if second and self._reference.is_sound(trial):
            return f"the second instance: {second}"
        after = self._compare(self._trial)
        return before or (f"the first instance, after the second was called: {after}" if after else "")

    def thread(self) -> str:
        """From another thread than the one that built the model."""
        return self._compare(self._trial, "thread")

    def grad(self) -> str:
        """While gradients are recorded."""
        return self._compare(self._trial, "grad")

    def bitwise(self) -> str:
        """Twice on the same inputs at the same addresses: the same bits."""
        one, other = (self._session.evidence(self._trial, shift=0) for _ in range(2))
        for leaf, first, second in zip(self._trial.expected, one.actual, other.actual, strict=True):
            if first is None or second is None:
                continue
            same = first.contiguous().reshape(-1).view(torch.uint8) == second.contiguous().reshape(-1).view(torch.uint8)
            if not bool(same.all()):
                count = int((first != second).sum())
                return f"{leaf.path}: {count} of {first.numel()} elements have other bits in a second call on the same inputs"
        return ""

    def shapes(self) -> str:
        """A second call with inputs of other shapes, and a third with the first ones again."""
        own = [tensor.shape for tensor in tensors.tensors_in(self._trial.args)]
        for case in self._cases:
            args = next(iter(case.trials())).args
            given = tensors.tensors_in(args)
            small = sum(tensor.numel() * tensor.element_size() for tensor in given) <= _OTHER_CASE_BYTES
            if case.case.init == self._reference.case.init and small and [tensor.shape for tensor in given] != own:
                break
        else:
            raise _Skip("no other case has the same constructor arguments and other shapes")
        before = self._compare(self._trial)
        other = self._compare(self._reference.trial_on(args))
        after = self._compare(self._trial)
        words = f"of case {case.case.name}"
        return (
            before
            or (f"after a call with other shapes, on those {words}: {other}" if other else "")
            or (f"after a call on those {words}: {after}" if after else "")
        )

    def _other_inputs(self) -> list[Any]:
        """Inputs that no trial has."""
        return self._reference.reference.inputs(self._reference.case, "rehearsal")

    def _need_cuda(self) -> None:
        if self._session.device.type != "cuda":
            raise _Skip("needs CUDA")


def _strided(tensor: torch.Tensor) -> torch.Tensor:
    """The same values with a gap after every element of its last dimension of more than one."""
    wide = [dim for dim in range(tensor.dim()) if tensor.shape[dim] > 1]
    if not wide or not tensor.numel():
        return tensor
    shape = list(tensor.shape)
    shape[wide[-1]] *= 2
    flat = torch.full((torch.Size(shape).numel() * tensor.element_size(),), _GAP, dtype=torch.uint8, device=tensor.device)
    room = flat.view(torch.uint8 if tensor.dtype == torch.bool else tensor.dtype).reshape(shape)
    room = room.view(torch.bool) if tensor.dtype == torch.bool else room
    every_other = room[tuple(slice(None, None, 2) if dim == wide[-1] else slice(None) for dim in range(tensor.dim()))]
    return every_other.copy_(tensor)


CONTRACTS: dict[str, Callable[[Contracts], str]] = {
    "stream": Contracts.stream,
    "strided": Contracts.strided,
    "misaligned": Contracts.misaligned,
    "sizes": Contracts.sizes,
    "graph": Contracts.graph,
    "instances": Contracts.instances,
    "thread": Contracts.thread,
    "grad": Contracts.grad,
    "bitwise": Contracts.bitwise,
    "shapes": Contracts.shapes,
}


def outcome(session: CaseSession, cases: list[CaseReference], names: list[str]) -> list[CheckResult]:
    """The results up to the end of the list, or up to the first contract that is broken."""
    results: list[CheckResult] = []
    try:
        session.construct()
        for result in Contracts(session, cases).results(names):
            results.append(result)
    except CandidateGone:
        results.append(replace(_unasked(names[len(results)]), detail="its process ended"))
    except CandidateFault as fault:
        results.append(replace(_unasked(names[len(results)]), detail=fault.detail))
    except ReferenceFault as fault:
        results.append(replace(_unasked(names[len(results)]), status=Status.SKIP, detail=f"the reference: {fault}"))
    return results


def _unasked(name: str) -> CheckResult:
    return CheckResult(name=contract(name), status=Status.FAIL)
