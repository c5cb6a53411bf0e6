"""What is measured on a GPU after everything was timed, because it may leave a process the slower for it.

A capture that fails can leave torch's generator or allocator in it, and a process that was once traced
launches more slowly ever after. So the reference's side is a process of its own, and nothing that goes
wrong here costs a row its verdict: the record says what is missing, and why.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

from kbench import samples, stats
from kbench.claims import Claims
from kbench.worker import tensors
from kbench.worker.session import CandidateFault
from kbench.worker.timing import steady
from kbench.worker.timing.pairs import CaseTimer
from kbench.worker.timing.side import Side, claimed_seconds, claimed_time

# Chains are for short calls: what takes longer than this is told apart well enough by a slot.
_STEADY_MOST_S = 1e-3
# The shortest chain lasts at least so long, so many steps of the clock, and so many empty kernels: a step of 32 ns
# (H200) is then a thousandth of it.
_CHAIN_S = 200e-6
_CHAIN_STEPS = 100
_CHAIN_FLOORS = 20
_CHAIN_CALLS_MOST = 100
# A stream holds so many launches before its host must wait, and a sleep lasts no longer than 20 ms.
_STREAM_CALLS_MOST = 200
_STREAM_ENQUEUE_S = 12e-3
_STEADY_PAIRS = 12
_SHOWN_SHARE = 0.25
# Sets of inputs that chains visit in turn, and the most that they may take together.
_SETS_BYTES = 256 * 2**20
# Inputs that take so many times the cache have left it when their turn comes again.
_COLD_L2_MULTIPLE = 3
_WALL_CALLS = 4
_BURN_S = 2.2
# Kernels that a process may claim; more is no list of kernels.
_KERNELS_MOST, _NAME_LIMIT = 64, 120


class CaseExaminer(CaseTimer):
    """Examines one candidate in one case; the measurements are those of `CaseTimer`'s sides."""

    def examine(self, timed: dict[str, Any], reference_kernels: dict[str, Any]) -> dict[str, Any]:
        """Measure; `timed` is what `CaseTimer.run` gave, `reference_kernels` is filled at the first time.

        Gives `extra` by the names of columns, `flags`, `notes` and `samples`, to be added to the timing, and its `cost`.
        """
        started = time.monotonic()
        self._found: dict[str, Any] = {}
        self._notes: list[str] = []
        self._samples: dict[str, Any] = {}
        sets = self._sets()
        with self._account("prepare_again"):
            for side in self._sides:
                self._prepare(side, len(sets))
            self._arguments = [self._place(side, [self._pool[pick] for pick in sets], shift=0) for side in self._sides]
        if max(timed["reference_s"], timed["candidate_s"]) <= _STEADY_MOST_S:
            with self._account("steady"):
                self._measure_steady(timed, sets)
        else:
            self._notes.append(f"graph not measured: a call takes more than {_STEADY_MOST_S * 1e3:g} ms")
        if self._settings.get("energy"):
            with self._account("energy"):
                self._attempt("energy", self._measure_energy)
        with self._account("kernels"):
            self._attempt("kernels", lambda: self._trace_kernels(reference_kernels))
        cost = {"wall_s": time.monotonic() - started, "gpu_s": self._gpu_s((timed["reference_s"], timed["candidate_s"])), "spent_s": self._spent_s}
        return {"extra": self._found, "cost": cost, "flags": sorted(self._flags), "notes": self._notes, "samples": self._samples}

    def _sets(self) -> list[int]:
        n_bytes = sum(t.numel() * t.element_size() for t in tensors.tensors_in(self._pool[0])) or 1
        return list(range(min(len(self._pool), max(1, _SETS_BYTES // n_bytes))))

    def _attempt(self, what: str, measure: Callable[[], None]) -> None:
        try:
            measure()
        except CandidateFault as error:
            self._notes.append(f"{what} not measured: {error.detail[:200]}")

    # A steady state.

    def _measure_steady(self, timed: dict[str, Any], sets: list[int]) -> None:
        names = ("reference", "candidate")
        enqueue_s = []
        for side, args in zip(self._sides, self._arguments, strict=True):
            answer = side.ask("wall", args=args[:1], calls=_WALL_CALLS)
            side.calls += _WALL_CALLS
            enqueue_s.append(stats.median(claimed_seconds(answer, _WALL_CALLS, "enqueue")))
        calls = [_chain_calls(timed[f"{name}_s"], timed["extra"]["floor_s"], timed["extra"]["clock_step_s"]) for name in names]
        captured = [self._ready(name, side, "graph", args, n) for name, side, args, n in zip(names, self._sides, self._arguments, calls, strict=True)]
        if all(captured):
            self._attempt("graph", lambda: self._measure_chains("graph", calls, sets))
            return
        # Only what both sides can do compares them.
        most = [min(_STREAM_CALLS_MOST, int(_STREAM_ENQUEUE_S / s)) // steady.CHAINS[-1] for s in enqueue_s]
        calls = [max(1, min(n, limit)) for n, limit in zip(calls, most, strict=True)]
        for name, side, args, n in zip(names, self._sides, self._arguments, calls, strict=True):
            self._ready(name, side, "stream", args, n)
        self._attempt("stream", lambda: self._measure_chains("stream", calls, sets))

    def _ready(self, name: str, side: Side, kind: str, args: list[tensors.Spec], calls: int) -> bool:
        """Have a side make its chains; whether it could."""
        try:
            refused = side.ask("chains", args=args, kind=kind, calls=calls).text("refused")
        except CandidateFault as error:
            refused = error.detail
        if refused:
            self._notes.append(f"{kind} not measured: the {name}'s calls cannot be captured: {refused[:200]}")
        return not refused

    def _measure_chains(self, kind: str, calls: list[int], sets: list[int]) -> None:
        """Time the chains of both sides in random-order pairs; the seconds of a call are the slope over them."""
        chains: list[list[list[float]]] = [[], []]
        shown = [0, 0]
        for order in stats.block_orders(_STEADY_PAIRS, self._random):
            seed = secrets.randbits(62)
            for index in ("rc".index(letter) for letter in order):
                answer = self._sides[index].ask("chain", seed=seed)
                chains[index].append(claimed_seconds(answer, len(steady.CHAINS)))
                self._sides[index].busy_s += answer.number("busy_s") or 0.0
                shown[index] += not answer.flag("hidden")
        if not self._is_right(sets, steady.CHAINS[-1] * calls[1], seed):
            self._notes.append(f"{kind} not measured: the candidate's outputs differ there")
            return
        measured = {"calls": calls, "chains": list(steady.CHAINS), "reference_s": chains[0], "candidate_s": chains[1]}
        try:
            self._found.update(samples.steady(kind, measured))
        except ValueError as error:
            self._notes.append(f"{kind} not measured: {error}")
            return
        self._samples[kind] = measured
        n_bytes = sum(t.numel() * t.element_size() for pick in sets for t in tensors.tensors_in(self._pool[pick]))
        self._found[f"{kind}_l2"] = "cold" if n_bytes >= _COLD_L2_MULTIPLE * torch.cuda.get_device_properties(self._device).L2_cache_size else "warm"
        for name, seconds in zip(("reference", "candidate"), chains, strict=True):
            if not samples.is_linear(steady.CHAINS, seconds):
                self._flags.add(f"{name}_{kind}_not_linear")
        # One launch in a while that was slower than the sleep before it leaves a median alone.
        if max(shown) > _SHOWN_SHARE * _STEADY_PAIRS:
            self._flags.add(f"{kind}_host_bound")

    def _is_right(self, sets: list[int], calls: int, seed: int) -> bool:
        """Whether the last call of the last chain computed what the reference does."""
        if self._reference.stateful or self._changes_inputs or (self._sides[1].session.baseline and self._draws):
            return True
        snapshot = self._sides[1].session.arenas["outputs"].memory.clone()
        try:
            visited = [self._pool[sets[i % len(sets)]] for i in range(calls)]
            # Draws depend on all the calls before; without any, the last one stands alone.
            visited = visited if self._draws else visited[-1:]
            # The last one alone is handed over.
            self._compare(snapshot, visited, seed, chosen=len(visited) - 1, at=0)
        except CandidateFault:
            return False
        return True

    # Energy, kernels.

    def _measure_energy(self) -> None:
        """Joules of a call, gross: mean power of a run alone, times the seconds of a call in it."""
        meters = [self._monitor.energy_meter() if self._monitor else None for _ in self._sides]
        for name, side, args, meter in zip(("reference", "candidate"), self._sides, self._arguments, meters, strict=True):
            if meter is None:
                self._notes.append("energy not measured: this GPU has no energy counter that NVML reads")
                return
            with meter:
                answer = side.ask("burn", args=args[:1], seconds=_BURN_S)
            seconds = claimed_time(answer)
            side.busy_s += seconds
            calls = answer.number("calls") or 0.0
            if meter.power_w is None or calls < 1.0:
                self._notes.append(f"energy not measured: too few steps of the counter while the {name} ran")
                continue
            self._found[f"{name}_energy_j"] = meter.power_w * seconds / calls
            self._found[f"{name}_power_w"] = meter.power_w

    def _trace_kernels(self, reference_kernels: dict[str, Any]) -> None:
        if not reference_kernels:
            reference_kernels.update(_parse_kernels(self._sides[0].ask("kernels", args=self._arguments[0])))
        found = {"reference": reference_kernels, "candidate": _parse_kernels(self._sides[1].ask("kernels", args=self._arguments[1]))}
        for name, traced in found.items():
            self._found[f"{name}_kernels"] = traced["count"]
            self._found[f"{name}_busy_s"] = traced["busy_s"]
            self._found[f"{name}_span_s"] = traced["span_s"]
        self._found["kernels"] = {name: traced["list"] for name, traced in found.items()}
        self._flags.update(_kernel_flags(**found))


def _chain_calls(call_s: float, floor_s: float, step_s: float) -> int:
    least_s = max(_CHAIN_S, _CHAIN_STEPS * step_s, _CHAIN_FLOORS * floor_s)
    return min(_CHAIN_CALLS_MOST, max(1, math.ceil(least_s / call_s)))


def _kernel_flags(reference: dict[str, Any], candidate: dict[str, Any]) -> Iterable[str]:
    """What is odd about a candidate's kernels where nothing of that is odd about the reference's.

    Not refused: an honest call may return a view of its input, or choose by its data, and what a dishonest one says is
    what its process likes. The outputs of timed calls were compared.
    """
    if candidate["least"] == 0 < reference["least"]:
        yield "no_kernels"
    if reference["same"] and not candidate["same"]:
        yield "kernels_vary"


def _parse_kernels(answer: Claims) -> dict[str, Any]:
    """Take a claim about kernels apart strictly.

    Raises:
        CandidateFault: it is none.
    """
    numbers = {name: answer.number(name) or 0.0 for name in ("count", "least", "busy_s", "span_s")}
    listed = answer.parsed("list", _parse_list)
    return {**numbers, "count": int(numbers["count"]), "least": int(numbers["least"]), "same": answer.flag("same"), "list": listed}


def _parse_list(claim: Any) -> list[list[Any]]:
    if not isinstance(claim, list) or len(claim) > _KERNELS_MOST:
        raise ValueError("no list of kernels")
    kernels = [Claims({"name": name, "seconds": seconds}) for name, seconds in claim]
    return [[kernel.text("name", _NAME_LIMIT), kernel.number("seconds")] for kernel in kernels if kernel.has("seconds")]
