"""What does a candidate's Python see where tensors are on the CPU and it believes in a device?

A mode of torch answers as a device would (`x.is_cuda`, `x.device`, `torch.cuda.*`) and keeps every tensor on
the CPU. It is no part of the judgement: it only lets a candidate run that asks before it launches.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kbench.worker.cuda_on_cpu import draws, features
from kbench.worker.cuda_on_cpu.draws import default_generator

_CUDA = torch.device("cuda", 0)
_CPU = torch.device("cpu")

_ANSWERS: Mapping[Any, Callable[..., Any]] = {
    torch.Tensor.is_cuda.__get__: lambda *_: True,
    torch.Tensor.is_cpu.__get__: lambda *_: False,
    torch.Tensor.device.__get__: lambda *_: _CUDA,
    torch.Tensor.get_device: lambda *_: 0,
    torch.Tensor.cuda: lambda tensor, *_, **__: tensor,
    torch.Tensor.record_stream: lambda *_: None,
}
# What draws on the CPU unless it is told where; in place of a tensor that is there, it is drawn where that is.
_FACTORIES = frozenset({torch.randn, torch.rand, torch.normal})


class CudaMode(TorchFunctionMode):  # type: ignore[misc]
    """Answers for a device, and sends to the CPU what asks for one."""

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Answer a question about the device, or make the call on the CPU."""
        del types
        given = kwargs or {}
        if (answer := _ANSWERS.get(func)) is not None:
            return answer(*args, **given)
        where = draws.on_host if func in _FACTORIES and not _is_cuda(given.get("device")) else contextlib.nullcontext
        with where():
            return func(*map(_on_cpu, args), **{name: _on_cpu(value) for name, value in given.items()})


def _is_cuda(value: Any) -> bool:
    if isinstance(value, torch.device):
        return bool(value.type == "cuda")
    return isinstance(value, str) and value.partition(":")[0] == "cuda"


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device | str) and _is_cuda(value):
        return _CPU
    return value


_PlainGenerator = torch.Generator


class _Generator(torch.Generator):  # type: ignore[misc]
    """torch.Generator, which may be asked for on a device."""

    device = _CPU

    def __new__(cls, device: Any = "cpu") -> _Generator:
        """Make a generator of the CPU that says of itself where it was asked for."""
        made: _Generator = super().__new__(cls)
        made.device = _CUDA if _is_cuda(device) or isinstance(device, int) else _CPU
        return made


@contextlib.contextmanager
def device(*, draws_there: bool) -> Iterator[None]:
    """Let what runs inside believe in a device; afterwards torch is as it was, but for what was changed inside.

    `draws_there` says whether tensors that are filled at random count as the device's.
    """
    before = {name: getattr(torch.cuda, name, None) for name in _CUDA_FUNCTIONS}
    for name, value in _CUDA_FUNCTIONS.items():
        setattr(torch.cuda, name, value)
    torch.Generator = _Generator  # type: ignore[misc]
    try:
        with CudaMode(), draws.on_device() if draws_there else contextlib.nullcontext():
            yield
    finally:
        torch.Generator = _PlainGenerator  # type: ignore[misc]
        for name, value in _CUDA_FUNCTIONS.items():
            # What someone else has put there stays, to be seen.
            if getattr(torch.cuda, name, None) is value:
                setattr(torch.cuda, name, before[name])


class _Stream:
    """torch.cuda.Stream and ExternalStream: work is done when the call returns."""

    cuda_stream = 0
    device = _CUDA

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def synchronize(self) -> None:
        """Nothing is under way."""

    def wait_stream(self, _: object) -> None:
        """Nothing is under way."""

    def wait_event(self, _: object) -> None:
        """Nothing is under way."""

    def record_event(self, event: Any = None) -> Any:
        """Give an event that has happened."""
        return event or _Event()

    def query(self) -> bool:
        """All is done."""
        return True


class _Event:
    """torch.cuda.Event: it has happened; how long ago means nothing here."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def record(self, _: object = None) -> None:
        """It has happened."""

    def wait(self, _: object = None) -> None:
        """It has happened."""

    def synchronize(self) -> None:
        """It has happened."""

    def query(self) -> bool:
        """It has happened."""
        return True

    def elapsed_time(self, _: object) -> float:
        """No time is told where nothing is timed."""
        return 0.0


def _properties(_: object = None) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        name="NVIDIA H200 (on the CPU)",
        major=9,
        minor=0,
        multi_processor_count=132,
        total_memory=141 * 2**30,
        warp_size=32,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=48 * 2**10,
        shared_memory_per_block_optin=227 * 2**10,
        shared_memory_per_multiprocessor=228 * 2**10,
        L2_cache_size=60 * 2**20,
    )


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _no_context(*_: Any, **__: Any) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def _no_graph(*_: Any, **__: Any) -> None:
    raise features.UnsupportedFeatureError("CUDA graphs")


_CUDA_FUNCTIONS: Mapping[str, Any] = {
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "init": _nothing,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "set_device": _nothing,
    "device": _no_context,
    "device_of": _no_context,
    "synchronize": _nothing,
    "empty_cache": _nothing,
    "get_device_name": lambda _=None: _properties().name,
    "get_device_properties": _properties,
    "get_device_capability": lambda _=None: (9, 0),
    "is_current_stream_capturing": lambda: False,
    "Stream": _Stream,
    "ExternalStream": _Stream,
    "Event": _Event,
    "stream": _no_context,
    "current_stream": lambda _=None: _Stream(),
    "default_stream": lambda _=None: _Stream(),
    "set_stream": _nothing,
    # torch.manual_seed itself calls these.
    "manual_seed": default_generator.manual_seed,
    "manual_seed_all": default_generator.manual_seed,
    "default_generators": (default_generator,),
    "seed": default_generator.seed,
    "seed_all": default_generator.seed,
    "initial_seed": default_generator.initial_seed,
    "get_rng_state": lambda _=None: default_generator.get_state(),
    "set_rng_state": lambda state, _=None: default_generator.set_state(state),
    "CUDAGraph": _no_graph,
    "graph": _no_graph,
    "make_graphed_callables": _no_graph,
    "memory_allocated": lambda _=None: 0,
    "max_memory_allocated": lambda _=None: 0,
    "memory_reserved": lambda _=None: 0,
    "reset_peak_memory_stats": _nothing,
}
