"""Reference against candidate in random-order pairs of slots, seen from the judge.

The judge decides the order, writes fresh inputs at fresh addresses before each slot, picks afterwards
which outputs of a slot it compares, and holds what each side reports against a clock of its own.
"""

from __future__ import annotations

import math
import random
import secrets
import time
from collections.abc import Mapping
from typing import Any

import torch

from kbench import stats
from kbench.records import exploit
from kbench.worker import tensors
from kbench.worker.checks.values import difference, rms
from kbench.worker.reference import CaseReference
from kbench.worker.seeding import seed_everything
from kbench.worker.session import CandidateFault, CaseSession

# CUDA events on an H200 step by 32 ns.
_EVENT_STEP_S = 32e-9
# Sets of different inputs made with get_inputs; every use changes one of them a little.
_POOL_SETS = (2, 16)
_POOL_BYTES = 512 * 2**20
# A CPU slot lasts at least this long, so that neither the clock (40 ns) nor a scheduler's hiccup counts much.
_CPU_SLOT_S = 200e-6
_MAX_LOOPS = 64
# Inputs lie at a random multiple of 512 bytes in this slack: placement alone moves a short kernel by 3 to 6 %.
_SLACK_BYTES = 2 * 2**20
# Past outputs that a side keeps alive, at random, so that new ones lie elsewhere.
_MAX_HELD = 8
# Warm-up: at least so many calls and so much time on each side, at most so long in all.
_WARM_CALLS = 3
_WARM_S = 0.05
_WARM_CAP_S = 1.0
_WALL_CALLS = 20
# How much larger than in verification the error of a timed call may be.
_ERROR_GROWTH = 4.0
# The share of slots whose outputs are compared, and the least number.
_CHECKED_SHARE = 0.08
_CHECKED_LEAST = 3
# What a side may spend between the judge's clock and its own beyond what the reference's side spends: work that
# is done outside of the measured span shows here.
_EXCESS_SHARE = 0.5
_EXCESS_S = 50e-6


class Side:
    """One of the two processes, with what it has reported."""

    def __init__(self, session: CaseSession) -> None:
        self.session = session
        self.seconds: list[float] = []
        self.outside_s: list[float] = []
        self.reports: list[dict[str, Any]] = []
        self.wall_s: list[float] = []

    def ask(self, op: str, **arguments: Any) -> dict[str, Any]:
        """Ask the process at the other end."""
        return self.session.peer.ask("time", op, **arguments)


class CaseTimer:
    """Times one candidate in one case."""

    def __init__(
        self,
        reference: CaseReference,
        reference_side: CaseSession,
        candidate_side: CaseSession,
        settings: Mapping[str, Any],
    ) -> None:
        self._device = reference_side.device
        self._reference = reference
        self._sides = (Side(reference_side), Side(candidate_side))
        self._settings = settings
        self._random = random.Random(secrets.randbits(64))  # noqa: S311 - order and choice, not keys
        self._pool = self._make_pool()
        self._model = reference.reference.construct(reference.case, reference.init)
        first = next(iter(reference.trials()))
        self._draws = first.draws
        self._changes_inputs = bool(first.changed_inputs)
        self._verified_error = settings["verified_error"] or 0.0
        self._checked = 0
        self._loops = 1
        self._flags: set[str] = set()

    def run(self) -> dict[str, Any]:
        """Measure, decide, and give the fields of `records.Timing`."""
        threads = torch.get_num_threads()
        # Our own threads would spin beside a side's.
        torch.set_num_threads(1)
        try:
            for side in self._sides:
                self._prepare(side)
            estimates = self._warm()
            if self._device.type == "cpu":
                self._loops = min(_MAX_LOOPS, max(1, math.ceil(_CPU_SLOT_S / max(min(estimates), 1e-9))))
            per_block = stats.block_pairs(*estimates)
            orders = self._measure(per_block)
            self._measure_wall()
        finally:
            torch.set_num_threads(threads)
        self._audit()
        return self._conclude(per_block, orders)

    def _make_pool(self) -> list[list[Any]]:
        first = self._reference.reference.inputs(self._reference.case, "timed", 0)
        n_bytes = sum(tensors.span(t).numel() * t.element_size() for t in tensors.tensors_in(first)) or 1
        count = min(_POOL_SETS[1], max(_POOL_SETS[0], _POOL_BYTES // n_bytes // 4))
        rest = [self._reference.reference.inputs(self._reference.case, "timed", i) for i in range(1, count)]
        return [first, *rest]

    def _prepare(self, side: Side) -> None:
        layout = tensors.Layout()
        places = [
            [
                tensors.describe(leaf.tensor.contiguous(), place=layout.place)
                for leaf in next(iter(self._reference.trials())).expected
                if leaf.tensor is not None
            ]
            for _ in range(_MAX_LOOPS if self._device.type == "cpu" else 1)
        ]
        sizes = tensors.Layout()
        largest = max(self._pool, key=lambda args: sum(t.numel() for t in tensors.tensors_in(args)))
        for tensor in tensors.tensors_in(largest):
            sizes.place(tensor)
        side.session.arena("outputs", layout.end_bytes)
        side.session.arena("inputs", sizes.end_bytes * (_MAX_LOOPS + 1 if self._device.type == "cpu" else 1) + _SLACK_BYTES)
        self._places = places
        side.ask("prepare", outputs=places, threads=self._settings["threads"])

    def _warm(self) -> tuple[float, float]:
        """Call both sides in turn until caches, clocks and compilers have settled; seconds of a late call."""
        started = time.monotonic()
        latest = [math.inf, math.inf]
        spent = [0.0, 0.0]
        calls = [0, 0]
        while time.monotonic() - started < _WARM_CAP_S or min(calls) < _WARM_CALLS:
            for index, side in enumerate(self._sides):
                # A first call may compile for a long time; that is told apart from running.
                seconds = self._untimed_calls(side, 1 if not calls[index] else 3)
                spent[index] += sum(seconds[1:] or seconds)
                calls[index] += len(seconds)
                latest[index] = sorted(seconds)[len(seconds) // 2]
            if min(spent) >= _WARM_S and min(calls) >= _WARM_CALLS:
                break
        return latest[0], latest[1]

    def _untimed_calls(self, side: Side, count: int) -> list[float]:
        args = self._place_inputs(side, [self._random.randrange(len(self._pool))], shift=0)
        answer = side.ask("warm", args=args, calls=count)
        return _seconds(answer)

    def _measure(self, per_block: int) -> list[str]:
        """Blocks of pairs until the stopping rule is content; the order of each pair, `rc` or `cr`."""
        rule = stats.StoppingRule(precision=self._settings["precision"], budget_s=self._settings["budget_s"], repeat=self._settings["repeat"])
        started = time.monotonic()
        orders: list[str] = []
        while not rule.is_finished(self._ratios(per_block), pairs=len(orders), elapsed_s=time.monotonic() - started):
            wanted = rule.pairs_wanted(per_block, len(orders))
            while wanted > 0:
                for order in stats.block_orders(min(per_block, wanted), self._random):
                    orders.append(order)
                    self._measure_pair(order)
                    wanted -= 1
        return orders

    def _ratios(self, per_block: int) -> list[float]:
        return stats.block_log_ratios(self._sides[0].seconds, self._sides[1].seconds, per_block)

    def _measure_pair(self, order: str) -> None:
        """One slot of each side on the same inputs, each at an address of its own."""
        untimed = 1 if self._device.type == "cpu" else 0
        picks = [self._random.randrange(len(self._pool)) for _ in range(self._loops + untimed)]
        for pick in set(picks):
            self._freshen(self._pool[pick])
        seed = secrets.randbits(62)
        for letter in order:
            self._slot(self._sides["rc".index(letter)], picks, seed)

    def _slot(self, side: Side, picks: list[int], seed: int) -> None:
        shift = self._random.randrange(_SLACK_BYTES // tensors.ALIGNMENT_BYTES) * tensors.ALIGNMENT_BYTES
        args = self._place_inputs(side, picks, shift=shift)
        outputs = side.session.arenas["outputs"]
        check = side is self._sides[1] and self._is_to_be_checked()
        # Before every slot: memory that only some slots find poisoned would tell which ones are compared.
        outputs.poison()
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        started = time.perf_counter()
        answer = side.ask("slot", args=args, seed=seed, hold=self._random.randrange(_MAX_HELD))
        side.outside_s.append(time.perf_counter() - started)
        if check:
            snapshot = outputs.memory.clone()
            self._compare_inputs(side, args, picks)
            self._compare(snapshot, picks[-self._loops :], seed)
        (seconds,) = _seconds({"seconds": [answer.get("seconds")]})
        side.seconds.append(seconds)
        side.reports.append({name: answer[name] for name in ("hidden", "enqueue", "sm_clock_hz") if name in answer})

    def _place_inputs(self, side: Side, picks: list[int], *, shift: int) -> list[tensors.Spec]:
        layout = tensors.Layout(shift)
        arena = side.session.arenas["inputs"]
        specs = []
        for pick in picks:
            values = self._pool[pick]
            spec = tensors.describe(values, place=layout.place, trusted=True)
            tensors.write_tree(arena.memory, spec, values)
            specs.append(spec)
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        return specs

    def _freshen(self, args: list[Any]) -> None:
        """Turn a float input over and change an element of it: no answer of an earlier call is right any more.

        Rows move as wholes and every value has occurred before, so what holds for given inputs still holds.
        """
        floats = [t for t in tensors.tensors_in(args) if t.is_floating_point() and t.numel() > 1 and t.is_contiguous()]
        if not floats:
            return
        chosen = self._random.choice(floats)
        dims = [dim for dim in range(chosen.dim()) if chosen.shape[dim] > 1]
        chosen.copy_(torch.roll(chosen, 1 + self._random.randrange(chosen.shape[dims[0]] - 1), dims[0]))
        flat = chosen.view(-1)
        flat[self._random.randrange(flat.numel())] = flat[self._random.randrange(flat.numel())]

    def _is_to_be_checked(self) -> bool:
        if self._sides[1].session.baseline and self._draws:
            return False
        if self._reference.stateful:
            self._flags.add("outputs_unchecked_stateful")
            return False
        few = self._checked < _CHECKED_LEAST and len(self._sides[1].seconds) >= self._random.randrange(12)
        if few or self._random.random() < _CHECKED_SHARE:
            self._checked += 1
            return True
        return False

    def _compare_inputs(self, side: Side, args: list[tensors.Spec], picks: list[int]) -> None:
        """Hold the inputs of a slot against what was lent."""
        memory = side.session.arenas["inputs"].memory
        for spec, pick in zip(args, picks, strict=True):
            lent = iter(tensors.tensors_in(self._pool[pick]))
            for path, leaf in tensors.leaves(spec, "input"):
                if leaf["k"] != "tensor":
                    continue
                own = tensors.span(next(lent))
                now = tensors.view_of(memory, {**leaf, "shape": [own.numel()], "stride": [1]})
                if not self._changes_inputs and not torch.equal(now.view(torch.uint8), own.view(torch.uint8)):
                    raise CandidateFault(exploit("timed_input"), f"{path} modified by a timed call, though not in verification")

    def _compare(self, snapshot: torch.Tensor, picks: list[int], seed: int) -> None:
        """Compare the outputs of one call of a slot, picked now, with what the reference makes of it."""
        chosen = self._random.randrange(len(picks))
        seed_everything(seed)
        expected: list[Any] = []
        with torch.no_grad():
            for pick in picks[: chosen + 1]:
                expected = tensors.tensors_in(self._model(*tensors.clone(self._pool[pick])))
        for index, (place, tensor) in enumerate(zip(self._places[chosen], expected, strict=True)):
            actual = tensors.view_of(snapshot, place)
            if tensor.is_floating_point() or tensor.is_complex():
                atol, rtol = self._reference.tolerance.of(place["dtype"])
                # As near as in verification: an error that has grown since is another computation.
                atol = min(atol, max(atol * min(1.0, rms(tensor)), _ERROR_GROWTH * self._verified_error))
                wrong = difference(actual, tensor, atol, rtol).outside
            else:
                wrong = int((actual != tensor).sum())
            if wrong:
                raise CandidateFault(
                    exploit("timed_output"),
                    f"output[{index}] of a timed call: {wrong} of {tensor.numel()} elements wrong, though verification passed",
                )

    def _measure_wall(self) -> None:
        for side in self._sides:
            args = self._place_inputs(side, [0], shift=0)
            side.wall_s = _seconds(side.ask("wall", args=args, calls=_WALL_CALLS))

    def _audit(self) -> None:
        """Hold the candidate's reports against the judge's clock; the reference's side says what the road costs."""
        if self._device.type != "cpu":
            return
        reference, candidate = self._sides
        # What is hidden is hidden in every slot; what a busy machine adds is not.
        excess_s = stats.quantile(_excess(candidate, self._loops), 0.1) - stats.quantile(_excess(reference, self._loops), 0.75)
        claimed_s = stats.median(candidate.seconds) * self._loops
        if excess_s > _EXCESS_S + _EXCESS_SHARE * claimed_s:
            raise CandidateFault(
                exploit("clock"),
                f"its process reports {claimed_s:.3g} s a slot and spends {excess_s:.3g} s more outside of it than the reference's does",
            )

    def _conclude(self, per_block: int, orders: list[str]) -> dict[str, Any]:
        reference, candidate = self._sides
        ratios = self._ratios(per_block)
        summary = stats.compare(
            reference.seconds,
            candidate.seconds,
            per_block=per_block,
            orders=orders,
            precision=self._settings["precision"],
            resolution_s=_EVENT_STEP_S if self._device.type == "cuda" else 0.0,
        )
        for side in self._sides:
            hidden = [report["hidden"] for report in side.reports if "hidden" in report]
            if hidden and sum(hidden) < len(hidden):
                self._flags.add("host_bound" if side is candidate else "reference_host_bound")
        timer = "cuda_events_cold" if self._device.type == "cuda" else "cpu_monotonic"
        return {
            "case": self._reference.case.name,
            "verdict": summary.verdict,
            "timer": timer,
            "pairs": len(orders),
            "reference_s": summary.reference_s,
            "candidate_s": summary.candidate_s,
            "speedup": summary.speedup,
            "speedup_low": summary.speedup_low,
            "speedup_high": summary.speedup_high,
            "reference_wall_s": stats.median(reference.wall_s),
            "candidate_wall_s": stats.median(candidate.wall_s),
            "flags": sorted(self._flags | set(summary.flags)),
            "extra": {
                "delta": summary.delta,
                "noise": summary.noise,
                "self_check": summary.self_check,
                "order_effect": summary.order_effect,
                "checked_outputs": self._checked,
                "loops": self._loops,
                "blocks": len(ratios),
            },
            "samples": {
                "pairs_a_block": per_block,
                "orders": orders,
                "reference_s": reference.seconds,
                "candidate_s": candidate.seconds,
                "reference_reports": reference.reports,
                "candidate_reports": candidate.reports,
            },
        }


def _excess(side: Side, loops: int) -> list[float]:
    """What each slot took by the judge's clock beyond what the side's own clock says."""
    return [outside - inside * loops for outside, inside in zip(side.outside_s, side.seconds, strict=True)]


def _seconds(answer: dict[str, Any]) -> list[float]:
    """Parse claimed times strictly."""
    claimed = answer.get("seconds")
    if isinstance(claimed, list) and claimed and all(type(s) in (int, float) and 0 < s < math.inf for s in claimed):
        return [float(s) for s in claimed]
    raise CandidateFault(exploit("clock"), "its process reported no time, or one that cannot be")
