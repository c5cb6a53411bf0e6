"""A GPU that is nothing but a clock: work queued on one stream takes the time it is said to take."""

from __future__ import annotations

import contextlib
import ctypes
import math
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from kbench.worker import cudart, tensors
from kbench.worker.timing import kernels, pairs, slots, steady, vouch
from kbench.worker.timing.fresh import FreshSets

CLOCK_HZ = 1.98e9
# What an H200 showed: an event pair, and a launch.
EVENT_S = 1.3e-6
SLEEP_COST_S = 1e-6
BURST_COST_S = 80e-6
KERNELS = {"count": 2, "least": 2, "same": True, "busy_s": 4e-6, "span_s": 5e-6, "list": [["one", 2e-6], ["two", 2e-6]]}


class FakeGpu:
    """The host's clock and the stream's, in seconds; `capturing` holds what a graph records."""

    def __init__(self) -> None:
        self.host_s = 1.0
        self.stream_s = 1.0
        self.capturing: list[float] | None = None
        self.events: list[float] = []
        self.current_stream: object = None
        self.step_s = 1e-9

    def launch(self, seconds: float, *, host_s: float = 5e-6) -> None:
        """Queue a kernel; the host takes `host_s` for it."""
        if self.capturing is not None:
            self.capturing.append(seconds)
            return
        self.host_s += host_s
        self.queue(seconds)

    def queue(self, seconds: float) -> None:
        self.stream_s = max(self.stream_s, self.host_s) + seconds

    def sleep(self, cycles: int) -> None:
        # A launch like any other one: right after an event that nothing keeps busy, it is part of what events read.
        self.host_s += 5e-6
        self.queue(SLEEP_COST_S + cycles / CLOCK_HZ)

    def synchronize(self) -> int:
        if self.capturing is not None:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.host_s = max(self.host_s, self.stream_s)
        return 0

    # The CUDA runtime, as far as the clock uses it.

    def cudaEventCreate(self, reference: Any) -> int:  # noqa: N802 - CUDA's names
        self.events.append(0.0)
        reference._obj.value = len(self.events)
        return 0

    def cudaEventRecord(self, event: ctypes.c_void_p, _stream: None) -> int:  # noqa: N802
        self.queue(EVENT_S / 2)
        self.events[event.value - 1] = self.stream_s
        return 0

    def cudaEventQuery(self, event: ctypes.c_void_p) -> int:  # noqa: N802
        return 0 if self.events[event.value - 1] <= self.host_s else 600

    def cudaEventElapsedTime(self, reference: Any, first: ctypes.c_void_p, last: ctypes.c_void_p) -> int:  # noqa: N802
        steps = round((self.events[last.value - 1] - self.events[first.value - 1]) / self.step_s)
        reference._obj.value = steps * self.step_s * 1e3
        return 0

    def cudaDeviceSynchronize(self) -> int:  # noqa: N802
        return self.synchronize()

    def cudaGetLastError(self) -> int:  # noqa: N802
        return 0


class FakeGraph:
    gpu: FakeGpu

    def capture_begin(self, **_: Any) -> None:
        self.gpu.capturing = []
        self.stream = self.gpu.current_stream

    def capture_end(self) -> None:
        if self.gpu.capturing is None or self.stream is not self.gpu.current_stream:
            raise RuntimeError("capture must end on the stream it began on")
        self.recorded, self.gpu.capturing = self.gpu.capturing, None

    def replay(self) -> None:
        self.gpu.host_s += 5e-6
        for seconds in self.recorded:
            self.gpu.queue(seconds)


class _Stream:
    def wait_stream(self, _: Any) -> None:
        pass


def burst_clock(gpu: FakeGpu) -> Any:
    """A `BurstClock` whose gate stays closed for a second, and whose clock is the stream's."""

    class FakeBurstClock:
        def __init__(self, session: Any, sets: FreshSets) -> None:
            layout = tensors.Layout()
            self._session = session
            self._specs = [tensors.describe(args, place=layout.place, trusted=True) for args in sets.args]
            self.write(sets)

        def write(self, sets: FreshSets) -> None:
            sets.write(self._session.arenas["inputs"].memory, self._specs)

        def run(self, *, count: int, seed: int, limit_s: float, calls: bool = True) -> tuple[float, bool, torch.Tensor]:  # noqa: ARG002
            opens_s = gpu.stream_s = max(gpu.host_s, gpu.stream_s) + 1.0
            snapshot = self._session.do_burst(self._specs[:count], calls)
            queued = gpu.host_s < opens_s
            gpu.synchronize()
            return gpu.stream_s - opens_s + BURST_COST_S, queued, snapshot

    return FakeBurstClock


def install(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """Have the timers and the judge's half of the clock use a fake GPU."""
    gpu = FakeGpu()

    @contextlib.contextmanager
    def on_stream(stream: object) -> Iterator[None]:
        gpu.current_stream = stream
        yield
        gpu.current_stream = None

    properties = types.SimpleNamespace(L2_cache_size=1 << 16, uuid="fake")
    for name, value in {
        "_sleep": gpu.sleep,
        "get_device_properties": lambda _: properties,
        "synchronize": lambda *_: gpu.synchronize(),
        "reset_peak_memory_stats": lambda _: None,
        "memory_allocated": lambda _: 100,
        "memory_reserved": lambda _: 0,
        "max_memory_allocated": lambda _: 1124,
        "mem_get_info": lambda _: (0, 0),
        "Stream": _Stream,
        "current_stream": _Stream,
        "stream": on_stream,
        "current_device": lambda: 0,
        "graph_pool_handle": lambda: (0, 1),
        "CUDAGraph": type("CUDAGraph", (FakeGraph,), {"gpu": gpu}),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value, raising=False)
    monkeypatch.setattr(cudart, "library", lambda: gpu)
    monkeypatch.setattr(slots, "_now_ns", lambda: int(gpu.host_s * 1e9))
    monkeypatch.setattr(kernels, "trace", lambda _call, _arguments, _hide: KERNELS)
    # Warm-up is by the host's own clock, which does not know of this one.
    monkeypatch.setattr(pairs, "_WARM_S", 1e-4)
    monkeypatch.setattr(pairs, "monitor", lambda _: None)
    monkeypatch.setattr(pairs, "BurstClock", burst_clock(gpu))
    # Of which the clock of the judge's process knows nothing, either.
    monkeypatch.setattr(vouch, "_WALL_EXCESS_S", math.inf)
    monkeypatch.setattr(vouch, "_DELIVER_EXCESS_S", math.inf)
    monkeypatch.setattr(steady, "_renew_generator", lambda _: None)
    return gpu
