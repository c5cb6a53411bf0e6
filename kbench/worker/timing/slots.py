"""One timed slot, in the process that runs the model.

All that is used between two readings of a clock was bound before the candidate was loaded. What is
reported is still a claim: the judge holds it against a clock of its own (timing/pairs.py).
"""

from __future__ import annotations

import collections
import ctypes
import gc
import itertools
import mmap
import os
import resource
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch

from kbench.protocol import Message
from kbench.worker import cudart, tensors
from kbench.worker.seeding import seed_everything
from kbench.worker.timing.gate import DONE, OPEN, QUEUED, Gate

_now_ns = time.perf_counter_ns
_cpu_ns = time.process_time_ns
_usage = resource.getrusage
_OF_ALL_THREADS = resource.RUSAGE_SELF
_set_affinity = os.sched_setaffinity
_core_now = ctypes.CDLL(None).sched_getcpu
_no_grad = torch.no_grad
_copy_all = torch._foreach_copy_
_detach = torch.Tensor.detach
_data_ptr = torch.Tensor.data_ptr

# What could compute later than the clock looks is no output.
_TENSOR_TYPES = (torch.Tensor, torch.nn.Parameter)
_CONTAINERS: tuple[tuple[type, Callable[[Any], Any]], ...] = ((list, list.__iter__), (tuple, tuple.__iter__), (dict, tensors.values_of))
# Bytes of past outputs kept alive to push new ones to other addresses.
_HELD_BYTES = 64 * 2**20
# A flush reads this many times the L2: cold time on an H200 is flat from once on.
_FLUSH_L2_MULTIPLE = 1
# The clamp of the delay that hides the launch, and its slack over the measured enqueue time.
_DELAY_S = (20e-6, 20e-3)
_DELAY_SLACK_S = 10e-6
_DELAY_PER_ENQUEUE = 1.5
# Calls are queued for this long before `burn` waits for them.
_BURN_AHEAD_S = 2e-3
# Enough for torch to have all its threads take part in an addition.
_WAKING_ELEMENTS = 2**17
# Cycles that hide a launch or two, and three of a slow host: 20 us and 0.1 ms.
_START_HIDES = 40_000
_CALIBRATION_HIDES = 200_000
# Readings from which the step of the events' clock is told: sleeps that differ by a few cycles.
_STEP_READINGS = 40
_STEP_CYCLES = 20_000
_STEP_MORE = 37


class Timer(Protocol):
    """What times a model on one kind of device."""

    def warm(self, request: Message) -> Message:
        """Call the model untimed, `calls` times; `seconds` of each."""

    def slot(self, request: Message) -> Message:
        """Measure one slot; `seconds` a call."""

    def wake(self, request: Message) -> Message:
        """Make one untimed call on inputs of its own, right before a slot."""

    def burst(self, request: Message, at: Gate) -> Message:
        """Make a call on each argument list as soon as the gate opens, and hand all outputs over; see timing/burst.py."""

    def wall(self, request: Message) -> Message:
        """What a caller waits for one call with an idle device: `seconds` of each of `calls`, on the argument lists in turn.

        With `keep`, the outputs stay for `deliver`: handing them over takes as long as many a call does, and no two
        processes the same time.
        """

    def deliver(self, request: Message) -> Message:
        """Hand over what `wall` has kept."""


class GpuTimer(Timer, Protocol):
    """What a timer on a GPU measures besides, each under its own name."""

    def floor(self, request: Message) -> Message:
        """Measure `calls` slots of a kernel that does nothing, `seconds` of each, and the clock's step `step_s`."""

    def memory(self, request: Message) -> Message:
        """Make one untimed call; `bytes` that it needed at its peak beyond what was there before."""

    def burn(self, request: Message) -> Message:
        """Call the model back to back for `seconds`; how many `calls` that were, and the `seconds` they took."""

    @property
    def enqueue_s(self) -> float:
        """What the host takes to launch one call, as last measured by `wall`."""

    def arguments(self, request: Message) -> list[list[Any]]:
        """The argument lists of a request, in the judge's memory."""

    def hand_over(self, results: list[Any]) -> None:
        """Copy results into the judge's memory."""

    def hide(self, delay_s: float) -> None:
        """Have the device sleep so that what is queued next starts at once."""


class _Base:
    """What both timers share: the model's inputs at the places the judge names, and its outputs."""

    def __init__(
        self,
        *,
        call: Callable[..., Any],
        inputs: torch.Tensor,
        outputs: torch.Tensor,
        places: list[list[tensors.Spec]],
    ) -> None:
        self._call = call
        self._inputs = inputs
        self._outputs = [[tensors.view_of(outputs, spec) for spec in specs] for specs in places]
        self._ours = range(outputs.data_ptr(), outputs.data_ptr() + outputs.numel())
        self._held: collections.deque[Any] = collections.deque()
        self._last: list[Any] = []
        self._kept: list[Any] = []

    def arguments(self, request: Message) -> list[list[Any]]:
        """The argument lists of a request, in the judge's memory."""
        return [tensors.rebuild(spec, lambda leaf: tensors.view_of(self._inputs, leaf)) for spec in request["args"]]

    def hand_over(self, results: list[Any]) -> None:
        """Copy every output into the judge's memory before it hears that we are done."""
        to, given = [], []
        for places, result in zip(self._outputs, results, strict=False):
            returned = _plain_tensors(result)
            if len(returned) != len(places):
                raise ValueError(f"a timed call returned {len(returned)} tensors where {len(places)} were verified")
            for place, tensor in zip(places, returned, strict=True):
                if tensor.shape != place.shape:
                    raise ValueError(f"an output of shape {list(tensor.shape)} where {list(place.shape)} was verified")
                if self._is_ours(tensor):
                    raise ValueError("an output in memory that is the judge's, where copying it would cost nothing")
                if tensor.numel():
                    to.append(place)
                    given.append(_detach(tensor))
        if to:
            # On a GPU a few launches copy hundreds of them.
            _copy_all(to, given)

    def _is_ours(self, tensor: torch.Tensor) -> bool:
        return _data_ptr(tensor) in self._ours

    def deliver(self, request: Message) -> Message:
        """See `Timer`."""
        self.hand_over(self._kept)
        self._kept = []
        return {}

    def _blank(self, calls: int) -> list[Any]:
        """As much to hand over as so many calls give."""
        return [[torch.zeros_like(place) for place in places] for places in self._outputs[:calls]]

    def _hold(self, results: list[Any], count: int) -> None:
        """Keep the last `count` results alive, so that the next outputs lie elsewhere."""
        n_bytes = sum(place.numel() * place.element_size() for places in self._outputs for place in places)
        self._held.append(results)
        while len(self._held) > min(count, _HELD_BYTES // max(n_bytes, 1)):
            self._held.popleft()


class CpuTimer(_Base):
    """Times by the monotonic clock: `args` holds one argument list for each call of the slot."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        # Inputs lie anywhere in it: no slot is to be the first to touch a page.
        self._inputs[:: mmap.PAGESIZE].max()
        self._cores = os.sched_getaffinity(0)
        self._awake = torch.ones(_WAKING_ELEMENTS)

    def warm(self, request: Message) -> Message:
        """See `Timer`."""
        return self.wall(request)

    def wake(self, request: Message) -> Message:
        """See `Timer`; its inputs are not those of the slot, or their work could be done here."""
        self._move_to(request.get("core"))
        (args,) = self.arguments(request)
        with _no_grad():
            self._call(*args)
        return {}

    def slot(self, request: Message) -> Message:
        """See `Timer`."""
        arguments = self.arguments(request)
        results: list[Any] = []
        keep = results.append
        call = self._call
        gc_was_on = gc.isenabled()
        gc.disable()
        with _no_grad():
            # The threads have slept while the judge wrote the inputs.
            self._awake.add_(1.0)
            seed_everything(request["seed"])
            usage, start_cpu_ns = _usage(_OF_ALL_THREADS), _cpu_ns()
            start_ns = _now_ns()
            for args in arguments:
                keep(call(*args))
            end_ns = _now_ns()
            end_cpu_ns, usage_after = _cpu_ns(), _usage(_OF_ALL_THREADS)
        if gc_was_on:
            gc.enable()
        self.hand_over(results)
        self._hold(results, request.get("hold", 0))
        return {
            "seconds": (end_ns - start_ns) * 1e-9 / len(arguments),
            "cpu_s": (end_cpu_ns - start_cpu_ns) * 1e-9 / len(arguments),
            "preemptions": usage_after.ru_nivcsw - usage.ru_nivcsw,
            "page_faults": usage_after.ru_minflt - usage.ru_minflt,
            "core": _core_now(),
        }

    def _move_to(self, core: int | None) -> None:
        """Go to a core, and let the scheduler decide from there: threads that a model starts are not to share one."""
        if core in self._cores:
            _set_affinity(0, {core})
            _set_affinity(0, self._cores)

    def burst(self, request: Message, at: Gate) -> Message:
        """See `Timer`."""
        arguments = self.arguments(request)
        seed_everything(request["seed"])
        at.post(QUEUED)
        at.wait(OPEN)
        if request["calls"]:
            self._last = []
            with _no_grad():
                for args in arguments:
                    self._last.append(self._call(*args))
        self.hand_over(self._last or self._blank(len(arguments)))
        at.post(DONE)
        return {}

    def wall(self, request: Message) -> Message:
        """See `Timer`."""
        arguments = self.arguments(request)
        results, seconds = [], []
        seed_everything(request.get("seed", 0))
        with _no_grad():
            for index in range(request["calls"]):
                args = arguments[index % len(arguments)]
                start_ns = _now_ns()
                result = self._call(*args)
                seconds.append((_now_ns() - start_ns) * 1e-9)
                results.append(result)
        if request.get("keep"):
            self._kept = results
        return {"seconds": seconds}


class CudaTimer(_Base):
    """Times by events on the current stream, the launch hidden behind a sleep on the device.

    A slot is `cold` (a read pass evicts the L2 before it, leaving clean lines: the write-back of dirty ones
    would count) or `hot` (an untimed call on the same inputs before it).
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        properties = torch.cuda.get_device_properties(self._inputs.device)
        self._flush = torch.ones(properties.L2_cache_size * _FLUSH_L2_MULTIPLE // 4, device=self._inputs.device)
        self._sink = torch.empty((), device=self._inputs.device)
        self._sleep = torch.cuda._sleep
        self._events = [Event() for _ in range(3)]
        self._ends = (Event(), Event())
        self._sleep_cost_s, self._clock_hz = self._calibrate()
        self._enqueue_s = self._wall_s = 50e-6

    def _calibrate(self) -> tuple[float, float]:
        """Fit `_sleep(c)` = a + c/f from two lengths: the fixed cost a and the SM clock f in Hz."""
        self._slept(1_000_000)
        short_s = min(self._slept(20_000) for _ in range(5))
        long_s = min(self._slept(400_000) for _ in range(5))
        clock_hz = 380_000 / (long_s - short_s)
        return short_s - 20_000 / clock_hz, clock_hz

    def _slept(self, cycles: int) -> float:
        first, second, _ = self._events
        # As in a slot, the device is busy until all is queued: otherwise the launch would be part of the sleep's cost.
        self._sleep(_CALIBRATION_HIDES)
        first.record()
        self._sleep(cycles)
        second.record()
        cudart.synchronize()
        return first.seconds_until(second)

    def warm(self, request: Message) -> Message:
        """See `Timer`."""
        return self.wall(request)

    def wall(self, request: Message) -> Message:
        """See `Timer`."""
        arguments = self.arguments(request)
        seconds, enqueue, results = [], [], []
        if request.get("keep"):
            self._make_room(request["calls"])
        seed_everything(request.get("seed", 0))
        with _no_grad():
            for index in range(request["calls"]):
                args = arguments[index % len(arguments)]
                cudart.synchronize()
                start_ns = _now_ns()
                result = self._call(*args)
                queued_ns = _now_ns()
                cudart.synchronize()
                seconds.append((_now_ns() - start_ns) * 1e-9)
                enqueue.append((queued_ns - start_ns) * 1e-9)
                if request.get("keep"):
                    results.append(result)
        self._kept = results
        self._enqueue_s = sorted(enqueue)[len(enqueue) // 2]
        self._wall_s = sorted(seconds)[len(seconds) // 2]
        return {"seconds": seconds, "enqueue": enqueue}

    def deliver(self, request: Message) -> Message:
        """See `Timer`."""
        super().deliver(request)
        cudart.synchronize()
        return {}

    def _make_room(self, calls: int) -> None:
        """Have the allocator hold memory for the outputs of so many calls: no call is to wait for the driver's."""
        self._last = self._kept = []
        room = [torch.empty_like(place) for places in self._outputs[:calls] for place in places]
        del room

    def wake(self, request: Message) -> Message:
        """See `Timer`; a GPU needs none."""
        return {}

    def burst(self, request: Message, at: Gate) -> Message:
        """See `Timer`; all is queued while the stream waits at the gate."""
        arguments = self.arguments(request)
        seed_everything(request["seed"])
        # What is freed behind the gate cannot be used again before it opens.
        self._last = [] if request["calls"] else self._last or self._blank(len(arguments))
        cudart.synchronize()
        at.queue_wait(OPEN)
        if request["calls"]:
            with _no_grad():
                for args in arguments:
                    self._last.append(self._call(*args))
        self.hand_over(self._last)
        at.queue_post(DONE)
        at.post(QUEUED)
        cudart.synchronize()
        return {}

    def slot(self, request: Message) -> Message:
        """See `Timer`; behind a delay that is doubled `doubled` times, and `may_hide` where a longer one might hide the launch."""
        (args,) = self.arguments(request)
        delay_s = max(_DELAY_PER_ENQUEUE * self._enqueue_s + _DELAY_SLACK_S, _DELAY_S[0]) * 2 ** request.get("doubled", 0)
        answer = self._measure(args, request["seed"], min(delay_s, _DELAY_S[1]), request.get("hold", 0), cold=request.get("cold", True))
        return {**answer, "may_hide": not answer["hidden"] and delay_s < _DELAY_S[1]}

    def _measure(self, args: list[Any], seed: int, delay_s: float, hold: int, *, cold: bool) -> Message:
        start, before, after = self._events
        begin, end = self._ends
        cycles = int(delay_s * self._clock_hz)
        seed_everything(seed)
        gc.disable()
        with _no_grad():
            begin.record()
            if cold:
                torch.sum(self._flush, dim=0, out=self._sink)
            else:
                self._call(*args)
            # Not started before the sleep is queued, whose length tells the clock.
            self._sleep(_START_HIDES)
            start.record()
            self._sleep(cycles)
            before.record()
            queue_ns = _now_ns()
            result = self._call(*args)
            queued_ns = _now_ns()
            hidden = not before.is_done()
            after.record()
            self.hand_over([result])
            end.record()
        cudart.synchronize()
        gc.enable()
        self._hold([result], hold)
        slept_s = start.seconds_until(before)
        return {
            "seconds": before.seconds_until(after),
            "hidden": hidden,
            "enqueue": (queued_ns - queue_ns) * 1e-9,
            "sm_clock_hz": cycles / max(slept_s - self._sleep_cost_s, 1e-9),
            "busy_s": begin.seconds_until(end),
        }

    def floor(self, request: Message) -> Message:
        """See `GpuTimer`."""
        _, before, after = self._events
        seconds = []
        for _ in range(request["calls"]):
            torch.sum(self._flush, dim=0, out=self._sink)
            self._sleep(int(_DELAY_S[0] * self._clock_hz))
            before.record()
            self._sink.zero_()
            after.record()
            cudart.synchronize()
            seconds.append(before.seconds_until(after))
        return {"seconds": seconds, "step_s": self._step_s()}

    def _step_s(self) -> float:
        """The step of the events' clock: the least by which two readings of nearly the same length differ."""
        lengths_ns = sorted({round(self._slept(_STEP_CYCLES + _STEP_MORE * i) * 1e9) for i in range(_STEP_READINGS)})
        return min((after - before for before, after in itertools.pairwise(lengths_ns)), default=0) * 1e-9

    def memory(self, request: Message) -> Message:
        """See `GpuTimer`; what an extension allocates past torch's allocator shows in what the device has left."""
        (args,) = self.arguments(request)
        device = self._inputs.device
        cudart.synchronize()
        torch.cuda.reset_peak_memory_stats(device)
        before, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
        free, _ = torch.cuda.mem_get_info(device)
        with _no_grad():
            result = self._call(*args)
        cudart.synchronize()
        peak = torch.cuda.max_memory_allocated(device) - before
        left, _ = torch.cuda.mem_get_info(device)
        elsewhere = (free - left) - (torch.cuda.memory_reserved(device) - reserved)
        del result
        return {"bytes": peak + max(0, elsewhere)}

    def burn(self, request: Message) -> Message:
        """See `GpuTimer`."""
        (args,) = self.arguments(request)
        calls, start_ns = 0, _now_ns()
        limit_ns = int(request["seconds"] * 1e9)
        # Waiting at every call would idle the device, never waiting would queue without end.
        ahead = max(1, int(_BURN_AHEAD_S / self._wall_s))
        with _no_grad():
            while _now_ns() - start_ns < limit_ns:
                for _ in range(ahead):
                    self._call(*args)
                calls += ahead
                cudart.synchronize()
        return {"calls": calls, "seconds": (_now_ns() - start_ns) * 1e-9}

    def hide(self, delay_s: float) -> None:
        """See `GpuTimer`."""
        self._sleep(int(min(max(delay_s, _DELAY_S[0]), _DELAY_S[1]) * self._clock_hz))

    @property
    def enqueue_s(self) -> float:
        """See `GpuTimer`."""
        return self._enqueue_s


class Event:
    """A CUDA event by the runtime itself, on the legacy default stream, which is torch's current one."""

    def __init__(self) -> None:
        self._event = ctypes.c_void_p()
        cudart.check(cudart.library().cudaEventCreate(ctypes.byref(self._event)), "cudaEventCreate")
        self._record = cudart.library().cudaEventRecord
        self._query = cudart.library().cudaEventQuery
        self._elapsed = cudart.library().cudaEventElapsedTime

    def record(self) -> None:
        cudart.check(self._record(self._event, None), "cudaEventRecord")

    def is_done(self) -> bool:
        return int(self._query(self._event)) == 0

    def seconds_until(self, other: Event) -> float:
        milliseconds = ctypes.c_float()
        cudart.check(self._elapsed(ctypes.byref(milliseconds), self._event, other._event), "cudaEventElapsedTime")
        return milliseconds.value * 1e-3


def poison_free_memory(byte: int) -> None:
    """Fill every free block of torch's CUDA allocator, so that an output nobody wrote shows.

    `byte` is that of `memory.set_malloc_fill`: malloc fills with its complement, and so does this.
    """
    if not byte:
        return
    for segment in torch.cuda.memory_snapshot():
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "inactive":
                cudart.memset(block.get("address", address), byte ^ 0xFF, block["size"])
            address += block["size"]


def _plain_tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        if type(value) not in _TENSOR_TYPES or any(not name.startswith("_dynamo") for name in vars(value)):
            raise TypeError(f"a timed call returned no plain tensor but a {type(value).__name__}")
        return [value]
    # By the types' own methods: those of a subclass could compute what is asked for here.
    for kind, items_of in _CONTAINERS:
        if isinstance(value, kind):
            return [tensor for item in items_of(value) for tensor in _plain_tensors(item)]
    return []


TIMERS: dict[str, Callable[..., Timer]] = {"cpu": CpuTimer, "cuda": CudaTimer}
