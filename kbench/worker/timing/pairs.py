"""Reference against candidate in random-order pairs of slots, seen from the judge.

The judge decides the order, writes fresh inputs at fresh addresses before each slot, picks afterwards
which outputs of a slot it compares, and holds what each side reports against a clock of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import os
import random
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from kbench import samples, stats
from kbench.claims import Claims
from kbench.records import exploit
from kbench.worker import distribution, tensors
from kbench.worker.checks.values import difference, rms
from kbench.worker.reference import CaseReference, ReferenceFault, as_fault, leaves_after
from kbench.worker.seeding import seed_everything
from kbench.worker.session import CandidateFault, CaseSession
from kbench.worker.timing import idle, light
from kbench.worker.timing.burst import BurstClock
from kbench.worker.timing.ceilings import Ceilings
from kbench.worker.timing.fresh import Draw, FreshSets, turn_over
from kbench.worker.timing.monitor import Monitor, Observation, busy_before, monitor
from kbench.worker.timing.side import Side, claimed_seconds, claimed_time
from kbench.worker.timing.vouch import Vouching

# CUDA events on an H200 step by 32 ns; on others by up to a microsecond, which is measured.
EVENT_STEP_S = 32e-9
# Sets of different inputs made with get_inputs; every use changes one of them a little.
_POOL_SETS = (2, 16)
_POOL_BYTES = 512 * 2**20
# A CPU slot lasts at least this long, so that neither the clock (40 ns) nor a scheduler's hiccup counts much.
_CPU_SLOT_S = 200e-6
_MAX_LOOPS = 64
# Inputs lie at a random multiple of 512 bytes in a pool with room for so many of them, within these bounds: where
# a buffer lies moves a short kernel by 3 to 6 %, and stays the same for as long as the buffer does.
_PLACES = 8
_SLACK_BYTES = (2 * 2**20, 256 * 2**20)
# Past outputs that a side keeps alive, at random, so that new ones lie elsewhere. Small ones of a GPU share a page of
# 2 MiB unless they are many; on a CPU each one more is memory touched for the first time.
_MAX_HELD = {"cpu": 8, "cuda": 64}
# Warm-up: at least so many calls and so much time on each side, at most so long in all. An idle H200 runs at 345 MHz
# and is at 1980 after 50 ms of work. Sides take turns of a few milliseconds.
_WARM_CALLS = 3
_WARM_S = 0.05
_WARM_CAP_S = 1.0
_WARM_TURN_S = 5e-3
# A compiler's helpers, which a first call starts, take seconds until they have imported torch. Nobody waits longer for
# them, nor for what never rests.
_QUIET_CAP_S = 15.0
_WARM_TURN_CALLS = 200
# What a caller waits is measured in rounds of both sides, so that a busy moment of the host meets both; on a GPU they have
# as many calls, within these numbers, as should take so long.
_WALL_ROUNDS = 4
_WALL_CALLS = (16, 64)
_WALL_ROUND_S = 4e-3
# Pairs of hot slots: the least that give a 99 % interval, and a few.
_HOT_PAIRS = 12
# Calls that take longer than this are waited for less often.
_SLOW_CALL_S = 5e-3
_FLOOR_CALLS = 15
# Times that a pair is measured before a disturbed one is kept. Work that the scheduler interrupts takes ten times
# as long: that says nothing of the kernel.
_PAIR_TRIES = 4
# How much larger than in verification the error of a timed call may be.
_ERROR_GROWTH = 4.0
# The same where verification let an error beyond the tolerance pass.
_ORACLE_GROWTH = 2.0
_NO_METER = "energy not measured: no meter is read on a CPU"
# Tries to hide a launch behind a doubled delay before the slot is called host-bound.
_HIDING_TRIES = 3
# Inputs are drawn anew for every pair where that takes no longer than this, or than this share of its slots; for all
# the calls of bursts or waits, where it takes no longer than that.
_DRAWN_S, _DRAWN_SLOTS, _DRAWN_ONCE_S = 5e-3, 0.5, 50e-3
# Before so many pairs, at random, a slot has a variant among its inputs. What is grossly wrong counts: verification
# has judged small differences there, by float64 where it had to.
_VARIANT_SHARE, _VARIANT_SLACK = 0.1, 8.0
# What else a side says of a slot.
_REPORTED = ("hidden", "enqueue", "sm_clock_hz", "cpu_s", "preemptions", "page_faults", "core")
# The share of slots whose outputs are compared, and the least number.
_CHECKED_SHARE = 0.08
_CHECKED_LEAST = 3
# So often rounds of waits are made before anyone is accused by them.
_WALL_LOOKS = 6
# A burst has so many calls that they take this long by what the side reports, within these numbers and bytes, and as
# many as can be queued: a stream holds some thousand launches, of which the copy of an output is one. It is made so
# often, for about so long in all.
_BURST_S = 6e-3
_BURST_CALLS = (2, 256)
_BURST_BYTES = 2**30
_BURST_LAUNCHES = 1000
_BURSTS = (3, 5)
_BURSTS_S = 0.5
# The share of bursts whose outputs are compared.
_BURSTS_CHECKED = 0.4
# How long the judge waits for a side to queue its calls: at least, and in multiples of what that took before.
_QUEUE_S, _QUEUE_FACTOR = 50e-3, 4.0
# So often a run, at random, the candidate is watched while the reference has its turn: its threads may spin for
# the first of these times after its last call; then it may use no more than that share of one processor.
_WATCHES = 4
_WATCH_SHARE = 0.12
_SETTLE_S, _WATCH_S = 0.01, 0.02
_IDLE_SHARE = 0.1


class CaseTimer:
    """Times one candidate in one case."""

    def __init__(
        self,
        reference: CaseReference,
        reference_side: CaseSession,
        candidate_side: CaseSession,
        settings: Mapping[str, Any],
        ceilings: Ceilings | None = None,
    ) -> None:
        self._device = reference_side.device
        self._reference = reference
        self._sides = (Side(reference_side), Side(candidate_side))
        self._settings = settings
        self._ceilings = ceilings
        self._random = random.Random(secrets.randbits(64))  # noqa: S311 - order and choice, not keys
        if reference.pool is None:
            pool, reference.draws_shapes, reference.draw_s = self._make_pool()
            reference.returned = self._find_returned(pool)
            # Last of all: what cannot be timed is found so every time.
            reference.pool = pool
        self._pool = reference.pool
        self._returned = reference.returned
        self._model = reference.reference.construct(reference.case, reference.init)
        first = next(iter(reference.trials()))
        self._draws = first.draws
        self._written = first.written
        self._changes_inputs = bool(first.written)
        returned = sum(leaf.tensor is not None for leaf in first.returned)
        self._names = [*(f"output[{index}]" for index in range(returned)), *(leaf.path for leaf in first.expected if leaf.input is not None)]
        self._timed_draws = distribution.TimedDraws(self._names, first.written) if first.draws and reference.distribution_cases else None
        self._verified_error = settings["verified_error"] or 0.0
        self._checked = 0
        self._loops = 1
        self._slack_bytes = 0
        self._slot_draw: Draw | None = None
        self._cores = sorted(os.sched_getaffinity(0))
        self._core = self._cores[0]
        self._discarded = 0
        self._overhead_s: list[float] = []
        self._burst_calls = 0
        self._vouching = Vouching()
        self._watched = 0
        self._idle_cpu_s = self._idle_s = 0.0
        self._stolen_share = 0.0
        self._flags: set[str] = {"drawn_shapes"} if reference.draws_shapes else set()
        self._floor_s: float | None = None
        self._step_s = EVENT_STEP_S
        self._spent_s: dict[str, float] = {}
        self._wall_s = 0.0
        self._monitor: Monitor | None = None
        if self._device.type == "cuda":
            self._monitor = monitor(str(torch.cuda.get_device_properties(self._device).uuid))

    @property
    def _untimed(self) -> int:
        """Calls of a slot before its clock starts."""
        return 1 if self._device.type == "cpu" else 0

    def run(self) -> dict[str, Any]:
        """Measure, decide, and give the fields of `records.Timing`."""
        started = time.monotonic()
        threads = torch.get_num_threads()
        # Our own threads would spin beside a side's.
        torch.set_num_threads(1)
        try:
            with self._account("prepare"):
                for side in self._sides:
                    self._prepare(side)
            with self._account("warm"):
                estimates = self._warm()
            if self._device.type == "cpu":
                self._loops = min(_MAX_LOOPS, max(1, math.ceil(_CPU_SLOT_S / max(min(estimates), 1e-9))))
                for side in self._sides:
                    self._prepare(side)
            self._extend_pool()
            slots_s = self._loops * sum(estimates)
            self._slot_draw = self._draw_where_cheap(self._loops + self._untimed, max(_DRAWN_S, _DRAWN_SLOTS * slots_s))
            per_block = stats.block_pairs(*estimates)
            with self._account("cold" if self._device.type == "cuda" else "pairs"):
                ticks = _stolen_ticks()
                orders, seen = self._watch(lambda: self._measure(per_block))
                stolen, every = (now - then for now, then in zip(_stolen_ticks(), ticks, strict=True))
                self._stolen_share = stolen / every if every and self._device.type == "cpu" else 0.0
            if self._device.type == "cuda":
                with self._account("hot"):
                    self._measure_hot()
                with self._account("floor"):
                    self._measure_floor_and_memory()
                with self._account("bursts"):
                    self._measure_bursts()
            with self._account("wall"):
                self._measure_wall()
        finally:
            torch.set_num_threads(threads)
        self._audit()
        with self._account("light"):
            bound = self._hold_against_light()
        self._wall_s = time.monotonic() - started
        timing = self._conclude(per_block, orders, seen)
        timing["extra"].update(bound)
        return timing

    @contextlib.contextmanager
    def _account(self, name: str) -> Iterator[None]:
        """Add the time of a stage to what this timing costs."""
        started = time.monotonic()
        yield
        self._spent_s[name] = time.monotonic() - started

    def _watch(self, measure: Callable[[], list[str]]) -> tuple[list[str], Observation]:
        """Measure, and see what else goes on at the GPU meanwhile."""
        if self._monitor is None:
            return measure(), Observation()
        self._monitor.begin()
        orders = measure()
        seen = self._monitor.finish()
        before = self._settings.get("gpu_busy_before")
        seen.fields["gpu_busy_before"] = before
        seen.flags += busy_before(before)
        return orders, seen

    def _make_pool(self) -> tuple[list[list[Any]], bool, float]:
        """Sets of inputs, whether get_inputs draws their shapes, and what it takes to draw a set."""
        first = self._draw()
        n_bytes = sum(tensors.span(t).numel() * t.element_size() for t in tensors.tensors_in(first)) or 1
        count = min(_POOL_SETS[1], max(_POOL_SETS[0], _POOL_BYTES // n_bytes // 4))
        self._settle()
        started = time.perf_counter()
        drawn = [first, *(self._draw() for _ in range(1, count))]
        self._settle()
        draw_s = (time.perf_counter() - started) / (count - 1)
        if all(_layout_of(args) == _layout_of(first) for args in drawn):
            return drawn, False, draw_s
        # Where get_inputs draws shapes, the clock takes the largest that it met: one time is for one size.
        largest = max(drawn, key=lambda args: sum(t.numel() for t in tensors.tensors_in(args)))
        return [largest, *FreshSets([largest], count - 1, self._random).args], True, draw_s

    def _draw(self) -> list[Any]:
        return self._reference.reference.inputs(self._reference.case, "timed", secrets.randbits(62))

    def _draw_where_cheap(self, sets: int, limit_s: float) -> Draw | None:
        """What draws inputs of the layout of the pool, where so many sets take no longer than that; nothing of an earlier call is in them."""
        if self._reference.draws_shapes or sets * self._reference.draw_s > limit_s:
            return None
        layout = _layout_of(self._pool[0])

        def draw() -> list[Any]:
            args = self._draw()
            return args if _layout_of(args) == layout else self._random.choice(self._pool)

        return draw

    def _find_returned(self, pool: list[list[Any]]) -> list[torch.Tensor]:
        """What the reference returns for inputs of the pool, as far as their shapes go.

        Raises:
            ReferenceFault: shapes of outputs depend on the values of inputs, so that no place can be laid out beforehand.
        """
        model = self._reference.reference.construct(self._reference.case, self._reference.init)
        written = next(iter(self._reference.trials())).written
        found = []
        for args in pool[:2]:
            seed_everything(0)
            with as_fault("Model.forward raised"), torch.no_grad(), self._reference.reference.calling():
                found.append([tensor.detach().clone() for tensor in tensors.tensors_in(leaves_after(model, tensors.clone(args), written))])
        if any(one.shape != other.shape for one, other in zip(found[0], found[-1], strict=True)):
            raise ReferenceFault("the shapes of its outputs depend on the values of its inputs: that can be verified, but not timed")
        return found[0]

    def _extend_pool(self) -> None:
        """No two calls of one slot may have the same inputs."""
        missing = self._loops + self._untimed - len(self._pool)
        if missing > 0:
            self._pool += FreshSets(self._pool[:1], missing, self._random, self._draw_where_cheap(missing, _DRAWN_ONCE_S)).args

    def _prepare(self, side: Side, sets: int = 1, *, outputs: int = 0) -> None:
        """Open memory for outputs of `outputs` calls and, on a GPU, `sets` of inputs; have the side get ready for the clock."""
        layout = tensors.Layout()
        places = [[tensors.describe(tensor.contiguous(), place=layout.place) for tensor in self._returned] for _ in range(outputs or self._loops)]
        sizes = tensors.Layout()
        largest = max(self._pool, key=lambda args: sum(t.numel() for t in tensors.tensors_in(args)))
        for tensor in tensors.tensors_in(largest):
            sizes.place(tensor)
        n_bytes = sizes.end_bytes * max(sets, self._loops + self._untimed if self._device.type == "cpu" else 1)
        self._slack_bytes = min(max((_PLACES - 1) * n_bytes, _SLACK_BYTES[0]), _SLACK_BYTES[1])
        side.session.arena("outputs", layout.end_bytes)
        side.session.arena("inputs", n_bytes + self._slack_bytes)
        self._places = places
        side.ask("prepare", outputs=places, written=self._written, threads=self._settings["threads"])

    def _warm(self) -> tuple[float, float]:
        """Call both sides in turn until caches, clocks and compilers have settled; seconds of a late call."""
        started = time.monotonic()
        latest = [math.inf, math.inf]
        spent = [0.0, 0.0]
        calls = [0, 0]
        while time.monotonic() - started < _WARM_CAP_S or min(calls) < _WARM_CALLS:
            for index, side in enumerate(self._sides):
                seconds = self._untimed_calls(side, _warm_calls(calls[index], latest[index]))
                # A first call may compile: that is no warm-up of anything.
                spent[index] += sum(seconds) if calls[index] else 0.0
                calls[index] += len(seconds)
                latest[index] = sorted(seconds)[len(seconds) // 2]
            if min(spent) >= _WARM_S and min(calls) >= _WARM_CALLS:
                break
        for side in self._sides:
            idle.wait_until_quiet(side.session.peer.pid, limit_s=_QUIET_CAP_S)
        return latest[0], latest[1]

    def _untimed_calls(self, side: Side, count: int) -> list[float]:
        args = self._place(side, [self._random.choice(self._pool)], shift=0)
        answer = side.ask("warm", args=args, calls=count)
        side.calls += count
        return claimed_seconds(answer, count)

    def _measure(self, per_block: int) -> list[str]:
        """Blocks of pairs until the stopping rule is content; the order of each pair, `rc` or `cr`."""
        rule = stats.StoppingRule(precision=self._settings["precision"], budget_s=self._settings["budget_s"], repeat=self._settings["repeat"])
        started = time.monotonic()
        orders: list[str] = []
        discarding_s = 0.0
        while not rule.is_finished(self._ratios(per_block), pairs=len(orders), elapsed_s=time.monotonic() - started):
            wanted = rule.pairs_wanted(per_block, len(orders))
            while wanted > 0:
                # One core has a busy neighbour and another has not: both sides meet the same one.
                self._core = self._random.choice(self._cores)
                for order in stats.block_orders(min(per_block, wanted), self._random):
                    orders.append(order)
                    may_discard = discarding_s < self._settings["budget_s"]
                    discarding_s += self._measure_pair(order, tries=_PAIR_TRIES if may_discard else 1)
                    wanted -= 1
                if self._monitor is not None:
                    self._monitor.sample()
        return orders

    def _ratios(self, per_block: int) -> list[float]:
        return stats.block_log_ratios(self._sides[0].seconds, self._sides[1].seconds, per_block)

    def _measure_pair(self, order: str, *, tries: int = 1, cold: bool = True) -> float:
        """Measure a pair, again where it was disturbed, `tries` times at most; the seconds spent on what was discarded."""
        started = time.monotonic()
        spent_s = 0.0
        for left in reversed(range(tries)):
            self._try_pair(order, cold=cold)
            if not left or not any(side.was_disturbed for side in self._sides):
                break
            for side in self._sides:
                side.discard()
            self._discarded += 1
            spent_s = time.monotonic() - started
        return spent_s

    def _try_pair(self, order: str, *, cold: bool) -> None:
        """One slot of each side on the same inputs, each at an address of its own."""
        sets = self._fresh_sets()
        seed = secrets.randbits(62)
        if self._random.random() < _VARIANT_SHARE:
            self._try_variant(sets, seed, cold=cold)
        watch = self._watched < _WATCHES and self._random.random() < _WATCH_SHARE
        for letter in order:
            if letter == "r" and watch:
                self._watch_idle(sets, seed, cold=cold)
            else:
                self._slot(self._sides["rc".index(letter)], sets, seed, cold=cold)

    def _fresh_sets(self) -> list[list[Any]]:
        """Inputs for the calls of a slot, and for the untimed one before it."""
        picks = self._random.sample(range(len(self._pool)), self._loops + self._untimed)
        for pick in picks:
            if self._slot_draw is not None:
                self._pool[pick] = self._slot_draw()
            else:
                turn_over(self._pool[pick], self._random)
        return [self._pool[pick] for pick in picks]

    def _try_variant(self, sets: list[list[Any]], seed: int, *, cold: bool) -> None:
        """Have the candidate make a slot with a variant of the inputs among the others, of which only the outputs count.

        Who is right on variants while it is verified, and leaves out what plain inputs do not need while it is timed,
        cannot know beforehand which slots these are.
        """
        trials = [] if self._reference.draws_shapes or self._timed_draws is not None else self._reference.kept_variants()
        if not trials or self._reference.stateful or self._sides[1].session.baseline or (self._changes_inputs and not cold):
            return
        chosen = self._random.randrange(self._loops)
        variant = self._random.choice(trials).args
        if _layout_of(variant) != _layout_of(self._pool[0]):
            return
        mixed = list(sets)
        mixed[chosen + self._untimed] = variant
        side = self._sides[1]
        answer, _, args = self._try_slot(side, mixed, seed, cold=cold, doubled=0)
        side.busy_s += answer.number("busy_s") or 0.0
        self._checked += 1
        self._check_slot(side, args, mixed, seed, cold=cold, chosen=chosen, slack=_VARIANT_SLACK)

    def _watch_idle(self, sets: list[list[Any]], seed: int, *, cold: bool) -> None:
        """Have the reference take its turn while the candidate, unasked, ought to use no processor."""
        self._watched += 1
        pid = self._sides[1].session.peer.pid
        time.sleep(_SETTLE_S)
        started, used_s = time.monotonic(), idle.cpu_seconds(pid)
        self._slot(self._sides[0], sets, seed, cold=cold)
        time.sleep(_WATCH_S)
        self._idle_cpu_s += idle.cpu_seconds(pid) - used_s
        self._idle_s += time.monotonic() - started

    def _slot(self, side: Side, sets: list[list[Any]], seed: int, *, cold: bool) -> None:
        """Measure a slot; again, elsewhere, where its launch showed, for a call may have changed its inputs."""
        for doubled in range(_HIDING_TRIES):
            check = side is self._sides[1] and self._is_to_be_checked()
            answer, outside_s, args = self._try_slot(side, sets, seed, cold=cold, doubled=doubled)
            side.busy_s += answer.number("busy_s") or 0.0
            if check:
                # Not after every slot: the reference's next one would find its memory turned over, and look the slower.
                self._check_slot(side, args, sets, seed, cold=cold)
            if not answer.flag("may_hide"):
                break
        seconds = claimed_time(answer)
        if not cold:
            side.hot_s.append(seconds)
            return
        side.outside_s.append(outside_s)
        side.seconds.append(seconds)
        side.reports.append({name: said for name in _REPORTED if (said := answer.number(name)) is not None})

    def _try_slot(self, side: Side, sets: list[list[Any]], seed: int, *, cold: bool, doubled: int) -> tuple[Claims, float, list[tensors.Spec]]:
        """Have a side make a slot; what it says, the seconds by the judge's clock, and where its inputs lie."""
        outputs = side.session.arenas["outputs"]
        if self._untimed:
            # What is to be timed is not there yet, nor where it will be: an untimed call could do its work.
            side.ask("wake", args=self._place(side, sets[:1], shift=self._shift()), core=self._core)
            sets = sets[1:]
        # Before every slot: memory that only some slots find poisoned would tell which ones are compared. And before the
        # inputs are there.
        outputs.poison()
        args = self._place(side, sets, shift=self._shift())
        started = time.perf_counter()
        answer = side.ask("slot", args=args, seed=seed, hold=self._random.randrange(_MAX_HELD[self._device.type]), cold=cold, doubled=doubled)
        outside_s = time.perf_counter() - started
        return answer, outside_s, args

    def _check_slot(self, side: Side, args: list[tensors.Spec], sets: list[list[Any]], seed: int, *, cold: bool, **how: Any) -> None:
        """Compare what a slot left of its inputs and one of its outputs, as `_compare` does."""
        snapshot, timed = side.session.arenas["outputs"].memory.clone(), sets[self._untimed :]
        self._compare_inputs(side, args, timed)
        # A hot slot has made the same call before.
        self._compare(snapshot, timed, seed, calls_before=0 if cold else 1, **how)

    def _shift(self) -> int:
        return self._random.randrange(self._slack_bytes // tensors.ALIGNMENT_BYTES) * tensors.ALIGNMENT_BYTES

    def _place(self, side: Side, sets: list[list[Any]], *, shift: int) -> list[tensors.Spec]:
        layout = tensors.Layout(shift)
        arena = side.session.arenas["inputs"]
        specs = []
        for values in sets:
            spec = tensors.describe(values, place=layout.place, trusted=True)
            tensors.write_tree(arena.memory, spec, values)
            specs.append(spec)
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        return specs

    def _place_all(self, side: Side, sets: FreshSets) -> list[tensors.Spec]:
        layout = tensors.Layout()
        specs = [tensors.describe(args, place=layout.place, trusted=True) for args in sets.args]
        sets.write(side.session.arenas["inputs"].memory, specs)
        self._settle()
        return specs

    def _is_to_be_checked(self, *, surely: bool = False) -> bool:
        if self._sides[1].session.baseline and self._draws:
            return False
        if self._reference.stateful:
            self._flags.add(samples.UNCHECKED)
            return False
        least, share = (distribution.TIMED_LEAST, distribution.TIMED_SHARE) if self._timed_draws else (_CHECKED_LEAST, _CHECKED_SHARE)
        few = self._checked < least and len(self._sides[1].seconds) >= self._random.randrange(12)
        if surely or few or self._random.random() < share:
            self._checked += 1
            return True
        return False

    def _compare_inputs(self, side: Side, args: list[tensors.Spec], sets: list[list[Any]]) -> None:
        """Hold the inputs of a slot against what was lent."""
        memory = side.session.arenas["inputs"].memory
        for spec, values in zip(args, sets, strict=True):
            lent = iter(tensors.tensors_in(values))
            for path, leaf in tensors.leaves(spec, "input"):
                if leaf["k"] != "tensor":
                    continue
                own = tensors.span(next(lent))
                now = tensors.view_of(memory, {**leaf, "shape": [own.numel()], "stride": [1]})
                if not self._changes_inputs and not torch.equal(now.view(torch.uint8), own.view(torch.uint8)):
                    raise CandidateFault(exploit("timed_input"), f"{path} modified by a timed call, though not in verification")

    def _compare(
        self,
        snapshot: torch.Tensor,
        sets: list[list[Any]],
        seed: int,
        *,
        calls_before: int = 0,
        chosen: int | None = None,
        at: int | None = None,
        slack: float = 1.0,
    ) -> None:
        """Compare the outputs of one call of several, picked now unless it is given, with what the reference makes of it.

        They are at the place of that call, or at that numbered `at`; tolerances are `slack` times as wide.
        """
        if chosen is None:
            chosen = self._random.randrange(min(len(sets), len(self._places)))
        places = self._places[chosen if at is None else at]
        if self._timed_draws is not None:
            # One of the others of the same slot, too, if there are any: its draws are to be others.
            others = [index for index in range(min(len(sets), len(self._places))) if index != chosen]
            kept = [chosen, *self._random.sample(others, min(1, len(others)))]
            self._timed_draws.keep(*((sets[index], [tensors.view_of(snapshot, place) for place in self._places[index]]) for index in kept))
            return
        seed_everything(seed)
        expected: list[Any] = []
        with torch.no_grad():
            # Those before it draw, too.
            drawn = sets[: chosen + 1] if self._draws or self._changes_inputs else sets[chosen : chosen + 1]
            # A call may change its inputs, which the next one on them finds so.
            first = tensors.clone(drawn[0])
            for args in itertools.chain([first] * (calls_before + 1), map(tensors.clone, drawn[1:])):
                expected = tensors.tensors_in(leaves_after(self._model, args, self._written))
        for index, (name, place, tensor) in enumerate(zip(self._names, places, expected, strict=True)):
            actual = tensors.view_of(snapshot, place)
            if tensor.is_floating_point() or tensor.is_complex():
                atol, rtol = self._reference.tolerance.of(place["dtype"])
                # As near as in verification, where float64 may have had the last word: an error that has grown is another computation.
                most = max(atol, _ORACLE_GROWTH * self._verified_error)
                atol = min(most, max(atol * min(1.0, rms(tensor)), _ERROR_GROWTH * self._verified_error))
                wrong = difference(actual, tensor, slack * atol, slack * rtol).outside
            else:
                wrong = int(self._differing(index, actual, tensor, sets[chosen]).sum())
            if wrong:
                raise CandidateFault(
                    exploit("timed_output"),
                    f"{name} of a timed call: {wrong} of {tensor.numel()} elements wrong, though verification passed",
                )

    def _differing(self, index: int, actual: torch.Tensor, expected: torch.Tensor, args: list[Any]) -> torch.Tensor:
        """Where a discrete output of a call on `args` is wrong: as in verification, ties and what hangs on rounding are not."""
        differing = actual != expected
        if self._draws or not bool(differing.any()):
            return differing
        try:
            trial = self._reference.trial_on(args)
        except ReferenceFault:
            return differing
        leaves = [(number, leaf.tensor) for number, leaf in enumerate(trial.expected) if leaf.tensor is not None]
        if trial.undecided is None or index >= len(leaves) or not torch.equal(leaves[index][1], expected):
            return differing
        return trial.undecided.wrong(leaves[index][0], actual, expected)

    def _measure_wall(self) -> None:
        """What a caller waits for one call, each on inputs of its own; the outputs of some are compared."""
        calls, rounds = self._plan_waits()
        if calls > self._room:
            for side in self._sides:
                self._prepare(side, calls, outputs=calls)
        sets = FreshSets(self._pool, calls, self._random, self._draw_where_cheap(calls, _DRAWN_ONCE_S))
        for left in reversed(range(rounds)):
            for side in self._random.sample(self._sides, len(self._sides)):
                sets.freshen()
                seed = secrets.randbits(62)
                args = self._place_all(side, sets)
                side.session.arenas["outputs"].poison()
                self._settle()
                started = time.perf_counter()
                answer = side.ask("wall", args=args, calls=calls, seed=seed, keep=True)
                outside_s = time.perf_counter() - started
                side.ask("deliver")
                delivered_s = time.perf_counter() - started
                side.calls += calls
                # The first one wakes what slept while the other side worked.
                seconds = claimed_seconds(answer, calls)
                side.wall_s += seconds[1:] or seconds
                side.wall_excess_s.append(outside_s - sum(seconds))
                side.deliver_excess_s.append(delivered_s - sum(seconds))
                if answer.has("enqueue"):
                    enqueue_s = claimed_seconds(answer, calls, "enqueue")
                    side.enqueue_s += enqueue_s[1:] or enqueue_s
                # The last thing of all: what was right for a while only shows.
                if side is self._sides[1] and self._is_to_be_checked(surely=not left):
                    self._compare(side.session.arenas["outputs"].memory.clone(), sets.args, seed)

    def _plan_waits(self) -> tuple[int, int]:
        """How many calls make a round of waits, and how many rounds.

        On a GPU as many as there is room for until they should take long enough for the judge's clock, by what is claimed.
        """
        least, most = _WALL_CALLS
        call_s = [stats.median(side.seconds) for side in self._sides]
        if max(call_s) > _SLOW_CALL_S:
            return least // 8, _WALL_ROUNDS // 2
        if self._device.type != "cuda":
            return least, _WALL_ROUNDS
        least_s = min(max(seconds, side.queue_s) for seconds, side in zip(call_s, self._sides, strict=True))
        return min(max(least, math.ceil(_WALL_ROUND_S / least_s)), most, self._room), _WALL_ROUNDS

    @property
    def _room(self) -> int:
        """For so many calls there is memory for inputs and outputs."""
        return max(1, self._burst_calls if self._device.type == "cuda" else min(self._loops + self._untimed, len(self._places)))

    def _measure_bursts(self) -> None:
        """Time the candidate by the judge's own clock, and what a burst costs without calls on the reference's side."""
        reference, candidate = self._sides
        claimed_s = stats.median(candidate.seconds)
        n_bytes = sum(t.numel() * t.element_size() for t in [*tensors.tensors_in(self._pool[0]), *self._returned]) or 1
        least, most = _BURST_CALLS
        most = min(most, _BURST_BYTES // n_bytes, _BURST_LAUNCHES // (1 + len(self._returned)))
        count = max(least, min(most, math.ceil(_BURST_S / claimed_s)))
        for side in self._sides:
            self._prepare(side, count, outputs=count)
        self._burst_calls = count
        if candidate.session.baseline:
            return
        sets = FreshSets(self._pool, count, self._random, self._draw_where_cheap(count, _DRAWN_ONCE_S))
        clock = BurstClock(candidate.session, sets)
        # The first one makes the allocator grow, too.
        while not clock.run(count=count, seed=0, limit_s=_queue_limit_s(count, candidate.queue_s))[1] and count > least:
            count = max(least, count // 2)
        self._burst_calls = count
        limit_s = _queue_limit_s(count, candidate.queue_s)
        times = max(_BURSTS[0], min(_BURSTS[1], int(_BURSTS_S / (count * claimed_s))))
        without = BurstClock(reference.session, sets)
        for _ in range(times):
            self._overhead_s.append(without.run(count=count, seed=0, limit_s=limit_s, calls=False)[0])
            sets.freshen()
            clock.write(sets)
            seed = secrets.randbits(62)
            seconds, queued, snapshot = clock.run(count=count, seed=seed, limit_s=limit_s)
            candidate.bursts.seconds.append(seconds)
            candidate.bursts.queued.append(queued)
            if not self._reference.stateful and self._random.random() < _BURSTS_CHECKED:
                self._checked += 1
                self._compare(snapshot, sets.args[:count], seed)

    def _touched_bytes(self) -> int:
        """Inputs, outputs and weights of a call."""
        weights = [tensor for _, tensor in self._reference.weights]
        return sum(t.numel() * t.element_size() for t in [*tensors.tensors_in(self._pool[0]), *self._returned, *weights])

    def _settle(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def _measure_hot(self) -> None:
        for order in stats.block_orders(_HOT_PAIRS, self._random):
            self._measure_pair(order, cold=False)

    def _measure_floor_and_memory(self) -> None:
        answer = self._sides[0].ask("floor", calls=_FLOOR_CALLS)
        self._floor_s = stats.median(claimed_seconds(answer, _FLOOR_CALLS))
        self._step_s = answer.number("step_s") or EVENT_STEP_S
        for side in self._sides:
            answer = side.ask("memory", args=self._place(side, self._pool[:1], shift=0))
            claimed = answer.number("bytes")
            side.memory_bytes = None if claimed is None else int(claimed)

    def _audit(self) -> None:
        """Hold what the candidate reports against the judge's clock; the reference's side says what the road costs."""
        if self._timed_draws is not None and (problem := self._timed_draws.problem(self._model, self._reference.tolerance)):
            raise CandidateFault(exploit("timed_output"), problem)
        if self._sides[1].session.baseline:
            return
        reference, candidate = self._sides
        if self._idle_cpu_s > _IDLE_SHARE * self._idle_s:
            raise CandidateFault(
                exploit("idle_work"),
                f"its process used {self._idle_cpu_s / self._idle_s:.2f} processors while the reference had its turn",
            )
        if changed := candidate.ask("changes").texts("changed", 6):
            raise CandidateFault(exploit("global_state"), f"while it was timed it changed {', '.join(changed)}")
        if candidate.bursts.seconds:
            self._vouching.hold_bursts(candidate, overhead_s=self._overhead_s, calls=self._burst_calls)
        elif self._device.type == "cpu":
            self._vouching.hold_slots(candidate, reference, calls=self._loops)
        self._hold_waits(reference, candidate)

    def _hold_waits(self, reference: Side, candidate: Side) -> None:
        """Hold what callers wait against the judge's clock; so few rounds may all have met a busy moment, and are made again."""
        for looks_left in reversed(range(_WALL_LOOKS)):
            try:
                self._vouching.hold_waits(candidate, reference)
                return
            except CandidateFault:
                if not looks_left:
                    raise
            self._measure_wall()

    def _hold_against_light(self) -> dict[str, Any]:
        """Say how fast the work could be done, and refuse a time that cannot be."""
        if self._ceilings is None or self._reference.work is None:
            return {}
        candidate = self._sides[1]
        seconds = stats.median(candidate.seconds)
        found = light.speed_of_light(self._reference.work, self._ceilings)
        if not candidate.session.baseline and (why := light.impossible(self._reference, self._pool[0], seconds, self._ceilings)):
            raise CandidateFault(exploit("impossible_speed"), why)
        if found.bound != "latency" and light.MARGIN * seconds < found.seconds:
            self._flags.add("beyond_speed_of_light")
        return {"sol_s": found.seconds, "sol_bound": found.bound, "work": dataclasses.asdict(self._reference.work)}

    def _conclude(self, per_block: int, orders: list[str], seen: Observation) -> dict[str, Any]:
        reference, candidate = self._sides
        timer = "cuda_events_cold" if self._device.type == "cuda" else "cpu_monotonic"
        measured = {
            "format": samples.FORMAT,
            "placement": samples.placement(
                timer,
                *((stats.median(side.seconds), samples.launches_at_most(side.queue_s)) for side in self._sides),
                touched_bytes=self._touched_bytes(),
            ),
            "pairs_a_block": per_block,
            "orders": orders,
            "precision": self._settings["precision"],
            "resolution_s": self._step_s if self._device.type == "cuda" else 0.0,
            "reference_s": reference.seconds,
            "candidate_s": candidate.seconds,
            "reference_reports": reference.reports,
            "candidate_reports": candidate.reports,
            "reference_hot_s": reference.hot_s,
            "candidate_hot_s": candidate.hot_s,
            "reference_wall_s": reference.wall_s,
            "candidate_wall_s": candidate.wall_s,
            "floor_s": self._floor_s,
            "stolen_share": self._stolen_share,
            "burst_overhead_s": self._overhead_s,
            "candidate_burst_s": candidate.bursts.seconds,
            "candidate_burst_queued": candidate.bursts.queued,
            "reference_wall_excess_s": reference.wall_excess_s,
            "candidate_wall_excess_s": candidate.wall_excess_s,
            "idle_processors": self._idle_cpu_s / self._idle_s if self._idle_s else None,
            "vouched": self._vouching.share,
            "flags": sorted({*self._flags, *self._vouching.flags, *seen.flags}),
        }
        concluded = samples.conclude(measured)
        return {
            **concluded,
            "case": self._reference.case.name,
            "timer": timer,
            "notes": [*seen.notes, *([_NO_METER] if self._device.type == "cpu" and self._settings.get("energy") else [])],
            "extra": {
                **seen.fields,
                **self._other_times(reference, candidate, per_block),
                **concluded["extra"],
                "wall_s": self._wall_s,
                "spent_s": self._spent_s,
                "checked_outputs": self._checked,
                "burst_calls": self._burst_calls,
                "discarded_pairs": self._discarded,
                "loops": self._loops,
            },
            "samples": measured,
        }

    def _other_times(self, reference: Side, candidate: Side, per_block: int) -> dict[str, Any]:
        """What was measured besides the headline, by the names of columns; None where it was not."""
        found: dict[str, Any] = {"floor_s": self._floor_s, "clock_step_s": self._step_s if self._device.type == "cuda" else None}
        for name, side in (("reference", reference), ("candidate", candidate)):
            found[f"{name}_enqueue_s"] = stats.median(side.enqueue_s) if side.enqueue_s else None
            found[f"{name}_memory_bytes"] = side.memory_bytes
        cycles = [[report.get("sm_clock_hz", 0.0) * seconds for report, seconds in zip(side.reports, side.seconds, strict=True)] for side in self._sides]
        if all(min(side) > 0 for side in cycles):
            # Where a power cap slows the clock for one side more than for the other, this says what is left without.
            fitted = stats.fitted_block_pairs(per_block, len(cycles[0]))
            found["cycles_speedup"] = math.exp(stats.hodges_lehmann(stats.block_log_ratios(cycles[0], cycles[1], fitted)))
        if self._device.type == "cuda":
            found["gpu_s"] = self._gpu_s((stats.median(reference.seconds), stats.median(candidate.seconds)))
        return found

    def _gpu_s(self, call_s: tuple[float, float]) -> float:
        """What both sides kept the device busy for: their slots, sleeps included, their bursts, and their other calls."""
        return sum(side.busy_s + sum(side.bursts.seconds) + side.calls * seconds for side, seconds in zip(self._sides, call_s, strict=True))


def _layout_of(args: list[Any]) -> list[tuple[Any, ...]]:
    return [(t.shape, t.stride(), t.dtype) for t in tensors.tensors_in(args)]


def _queue_limit_s(count: int, enqueue_s: float) -> float:
    return _QUEUE_S + _QUEUE_FACTOR * count * enqueue_s


def _warm_calls(calls: int, latest_s: float) -> int:
    """Calls of a side's next turn in the warm-up; a first call may compile for a long time, which tells nothing."""
    return 1 if not calls else min(_WARM_TURN_CALLS, max(_WARM_CALLS, int(_WARM_TURN_S / latest_s)))


def _stolen_ticks() -> tuple[int, int]:
    """Clock ticks that a hypervisor took from this machine, and all ticks; zeros where Linux does not say."""
    try:
        fields = [int(ticks) for ticks in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    except (OSError, ValueError, IndexError):
        return 0, 0
    return fields[-1], sum(fields)
