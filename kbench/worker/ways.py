"""How a call is made: plainly, or in one of the ways in which a user's program may make it.

Each way is what surrounds the arrival of the inputs, the call and the handing over of the outputs, and the
call itself. Some are rehearsed on other inputs first: what is made once (workspaces, pools of memory, loaded
kernels) then holds no launch of the real call up, and what the rehearsal computed is no answer to it. The contract
checks ask for them by name; see `contracts`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

# Bound before a candidate can patch them.
_no_grad, _enable_grad = torch.no_grad, torch.enable_grad
# What torch asks for before a capture: libraries make their workspaces in the first calls.
_WARM_CALLS = 2

Call = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """`rehearse` makes calls on other inputs, and what is called in the end; `around` surrounds inputs, call and outputs."""

    call: Callable[[Call, list[Any]], Any]
    around: Callable[[], AbstractContextManager[Any]] = nullcontext
    rehearse: Callable[[Call, list[Any]], Call] | None = None


def _plain(call: Call, args: list[Any]) -> Any:
    with _no_grad():
        return call(*args)


def _with_grad(call: Call, args: list[Any]) -> Any:
    with _enable_grad():
        return call(*args)


def _in_a_thread(call: Call, args: list[Any]) -> Any:
    """Call in a thread that has just begun; what it raises is raised here."""
    given: list[Any] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            given.append(_plain(call, args))
        except BaseException as error:  # noqa: BLE001 - a candidate may raise anything at all
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return given[0]


@functools.cache
def _side_stream() -> torch.cuda.Stream:
    """One stream for a rehearsal and the real call: torch keeps memory and workspaces for each."""
    return torch.cuda.Stream()


@contextmanager
def _on_a_stream() -> Iterator[None]:
    """Make a stream of the caller's own the current one: it waits for nobody, and nobody waits for it but at the end."""
    before = torch.cuda.current_stream()
    side = _side_stream()
    side.wait_stream(before)
    with torch.cuda.stream(side):
        yield
    before.wait_stream(side)


def _warmed(call: Call, args: list[Any]) -> Call:
    """Call on the caller's stream; what is called there again."""
    with _on_a_stream():
        for _ in range(_WARM_CALLS):
            _plain(call, args)
    return call


def _captured(call: Call, args: list[Any]) -> Call:
    """Capture a call into a CUDA graph; what replays it.

    torch captures on a stream that does not wait for the legacy default one: what is launched there meanwhile is
    neither refused nor captured, but runs at once, on the inputs of the rehearsal.
    """
    _warmed(call, args)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = _plain(call, args)

    def replay(*_args: Any) -> Any:
        graph.replay()
        return result

    return replay


WAYS: dict[str, Way] = {
    "plain": Way(call=_plain),
    "grad": Way(call=_with_grad),
    "thread": Way(call=_in_a_thread),
    "stream": Way(call=_plain, around=_on_a_stream, rehearse=_warmed),
    "graph": Way(call=_plain, rehearse=_captured),
}
