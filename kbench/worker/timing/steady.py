"""What a call takes in a steady state, from slopes: calls captured in a CUDA graph, or queued in a stream.

Three chains of calls are timed, of K, 3 K and 6 K. What every chain costs besides (events, the replay,
the step of the clock) cancels in the difference of two, so that kernels of a few microseconds can be
told apart; the third chain shows whether time really grows with the calls.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, Protocol

import torch

from kbench.protocol import Message
from kbench.worker import cudart
from kbench.worker.seeding import seed_everything
from kbench.worker.timing.slots import Event, GpuTimer

_no_grad = torch.no_grad

# The chains, in multiples of the shortest.
CHAINS = (1, 3, 6)
# Calls before the capture: compilers, libraries' handles and workspaces are for outside of it.
_CALLS_BEFORE = 2
# A launch of a graph is hidden behind this much sleep.
_GRAPH_DELAY_S = 200e-6
_STREAM_DELAY = (1.5, 20e-6)


class Chain(Protocol):
    """A number of calls that are queued at once."""

    delay_s: float

    def queue(self) -> Any:
        """Queue the calls; the result of the last one."""


class Steady:
    """The three chains of one model over given argument lists, ready to be timed.

    `kind` is `graph` or `stream`. A chain visits the argument lists in turn.

    Raises:
        CaptureError: the model's calls cannot be captured in a graph.
    """

    def __init__(self, timer: GpuTimer, call: Callable[..., Any], arguments: list[list[Any]], *, kind: str, calls: int) -> None:
        self._timer = timer
        self._events = (Event(), Event())
        make: Callable[..., Chain] = _Graph if kind == "graph" else _Stream
        self._chains: list[Chain] = []
        with _no_grad():
            for args in arguments[:_CALLS_BEFORE]:
                call(*args)
            cudart.synchronize()
            for multiple in CHAINS:
                listed = [arguments[i % len(arguments)] for i in range(multiple * calls)]
                self._chains.append(make(call, listed, timer.enqueue_s))
            # The first launch of a graph uploads it.
            for chain in self._chains:
                chain.queue()
            cudart.synchronize()

    def measure(self, seed: int) -> tuple[Message, Any]:
        """Time each chain once; `seconds` of each, whether launches were `hidden`, and the last chain's last result.

        A chain whose launch was not hidden has a longer sleep before it the next time.
        """
        before, after = self._events
        seconds, hidden, busy_s, result = [], True, 0.0, None
        gc.disable()
        with _no_grad():
            for chain in self._chains:
                seed_everything(seed)
                cudart.synchronize()
                self._timer.hide(chain.delay_s)
                before.record()
                result = chain.queue()
                was_hidden = not before.is_done()
                after.record()
                cudart.synchronize()
                seconds.append(before.seconds_until(after))
                busy_s += chain.delay_s + seconds[-1]
                hidden = hidden and was_hidden
                if not was_hidden:
                    chain.delay_s *= 2
        gc.enable()
        return {"seconds": seconds, "hidden": hidden, "busy_s": busy_s}, result


class CaptureError(RuntimeError):
    """A model whose calls cannot be captured; the text says what CUDA or torch said."""


class _Graph:
    """Calls captured one after the other, each free to use the memory of those before it, as in a stream."""

    delay_s = _GRAPH_DELAY_S

    def __init__(self, call: Callable[..., Any], arguments: list[list[Any]], _enqueue_s: float) -> None:
        self._graph = torch.cuda.CUDAGraph()
        self._result: Any = None
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            try:
                self._capture(call, arguments)
            except Exception as error:
                words = str(error).strip().splitlines() or [""]
                raise CaptureError(f"{type(error).__name__}: {words[0][:200]}") from None
        torch.cuda.current_stream().wait_stream(stream)

    def _capture(self, call: Callable[..., Any], arguments: list[list[Any]]) -> None:
        pool = torch.cuda.graph_pool_handle()
        self._graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            for args in arguments:
                # Dropped first, so that the next one may lie where it lay.
                self._result = None
                self._result = call(*args)
            self._graph.capture_end()
        except Exception:
            # On the stream that captures: no other one may end it.
            _end_capture(self._graph, pool)
            raise

    def queue(self) -> Any:
        self._graph.replay()
        return self._result


class _Stream:
    """Calls queued one after the other."""

    def __init__(self, call: Callable[..., Any], arguments: list[list[Any]], enqueue_s: float) -> None:
        self._call = call
        self._arguments = arguments
        factor, slack_s = _STREAM_DELAY
        self.delay_s = factor * enqueue_s * len(arguments) + slack_s

    def queue(self) -> Any:
        result = None
        for args in self._arguments:
            result = None
            result = self._call(*args)
        return result


def _end_capture(graph: Any, pool: Any) -> None:
    """Leave a capture that failed, so that the process can go on: the stream, the allocator and the generator."""
    device = torch.cuda.current_device()
    for step in (
        graph.capture_end,
        # Where the capture was broken, `capture_end` leaves before it comes to these two.
        lambda: torch._C._cuda_endAllocateToPool(device, pool),
        lambda: _renew_generator(device),
        cudart.last_error,
    ):
        try:
            step()
        except Exception:  # noqa: BLE001 - whatever of it was left already
            cudart.last_error()


def _renew_generator(device: int) -> None:
    """Give the default generator a fresh state: the old one still believes in the capture."""
    torch.cuda.default_generators[device].graphsafe_set_state(torch.Generator(device=f"cuda:{device}").graphsafe_get_state())
