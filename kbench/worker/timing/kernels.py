"""Which kernels a call runs, how long each, and how long the device is busy: CUPTI by way of torch's profiler.

In the process of the model and last of all: a process that has once been traced launches more slowly
ever after. So a candidate's list is a claim of its own process, and no verdict rests on anything in it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch

from kbench.protocol import Message
from kbench.worker import cudart

# Calls that are traced.
CALLS = 10
# Names listed of a call, and characters of each: templates run to thousands.
_NAMES = 64
_NAME_LENGTH = 120
# A sleep of the device between two calls tells them apart; torch's kernel for it has this in its name.
_MARKER = "spin_kernel"

Interval = tuple[int, int, str]


def trace(call: Callable[..., Any], arguments: list[list[Any]], hide: Callable[[], None]) -> Message:
    """Trace calls one by one: `count` of kernels a call, `busy_s`, `span_s`, `list` of [name, seconds], `least`, `same`.

    `least` is the count of the call that ran fewest, and `same` says whether every call ran the same by name, each as
    often. `busy_s` is the union of the intervals in which anything ran, copies and fills included; `span_s` is from the
    first start to the last end; both are medians, count and list those of a median call. `hide` has the device
    sleep, so that launches are no part of a span.
    """
    # Not torch.profiler: to look at one of its settings, that imports torch's compiler, which takes seconds.
    from torch.autograd.profiler import profile  # noqa: PLC0415 - 0.1 s that only this needs

    with torch.no_grad():
        call(*arguments[0])
        cudart.synchronize()
        with profile(use_cpu=False, use_device="cuda", use_kineto=True) as traced:
            for index in range(CALLS):
                hide()
                call(*arguments[index % len(arguments)])
                cudart.synchronize()
    return summary(split(_device_intervals(traced.kineto_results.events()), CALLS))


def split(intervals: Iterable[Interval], calls: int) -> list[list[Interval]]:
    """Split what ran by the markers before each call; a call may sleep itself, as often as every other one.

    Raises:
        ValueError: there are not as many markers as calls.
    """
    ran = sorted(intervals)
    markers = [index for index, (_, _, name) in enumerate(ran) if _MARKER in name]
    if not markers or len(markers) % calls:
        raise ValueError(f"the profiler saw {len(markers)} of {calls} calls")
    starts = markers[:: len(markers) // calls]
    return [ran[start + 1 : end] for start, end in itertools.pairwise([*starts, len(ran)])]


def summary(runs: list[list[Interval]]) -> Message:
    """Summarise traced calls, each a sorted list of (start ns, end ns, name)."""
    middle = sorted(runs, key=lambda run: (len(run), _busy_ns(run)))[len(runs) // 2]
    busy = sorted(_busy_ns(run) for run in runs)
    span = sorted(max(end for _, end, _ in run) - run[0][0] if run else 0 for run in runs)
    return {
        "count": len(middle),
        "least": min(len(run) for run in runs),
        "same": all(_names(run) == _names(runs[0]) for run in runs),
        "busy_s": busy[len(busy) // 2] * 1e-9,
        "span_s": span[len(span) // 2] * 1e-9,
        "list": [[name[:_NAME_LENGTH], (end - start) * 1e-9] for start, end, name in middle[:_NAMES]],
    }


def _device_intervals(events: Iterable[Any]) -> Iterable[Interval]:
    for event in events:
        # An annotation lies over kernels; it is none.
        if event.device_type() == torch.autograd.DeviceType.CUDA and not event.is_user_annotation():
            yield event.start_ns(), event.start_ns() + event.duration_ns(), event.name()


def _names(run: list[Interval]) -> Counter[str]:
    return Counter(name for _, _, name in run)


def _busy_ns(run: list[Interval]) -> int:
    total, until = 0, 0
    for start, end, _ in run:
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total
