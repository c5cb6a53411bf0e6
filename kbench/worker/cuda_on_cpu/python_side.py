"""What does a candidate's Python see where tensors are on the CPU and it believes in a device?

A mode of torch answers as a device would (`x.is_cuda`, `x.device`, `torch.cuda.*`) and keeps every tensor on
the CPU. It is no part of the judgement: it only lets a candidate run that asks before it launches.
"""

from __future__ import annotations

import contextlib
import ctypes
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kbench.worker.cuda_on_cpu import draws
from kbench.worker.cuda_on_cpu.faults import Fault, parse

_CUDA = torch.device("cuda", 0)
_CPU = torch.device("cpu")
# Where the runtime leaves the first fault of the process, for who catches the exception and says nothing.
_FAULT_VARIABLE = b"KBENCH_CUDA_FAULT"
_ORDER_VARIABLE = b"KBENCH_CUDA_ORDER"
_GENERATOR_VARIABLE = b"KBENCH_CUDA_GENERATOR"

_ANSWERS: Mapping[Any, Callable[..., Any]] = {
    torch.Tensor.is_cuda.__get__: lambda *_: True,
    torch.Tensor.is_cpu.__get__: lambda *_: False,
    torch.Tensor.device.__get__: lambda *_: _CUDA,
    torch.Tensor.get_device: lambda *_: 0,
    torch.Tensor.cuda: lambda tensor, *_, **__: tensor,
    torch.Tensor.record_stream: lambda *_: None,
}


class CudaMode(TorchFunctionMode):
    """Answers for a device, sends to the CPU what asks for one, and draws as a device draws."""

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Answer a question about the device, or make the call on the CPU."""
        del types
        given = kwargs or {}
        if (answer := _ANSWERS.get(func)) is not None:
            return answer(*args, **given)
        on_device = func in _DRAWS and (func not in _FACTORIES or _is_cuda(given.get("device")))
        moved = {name: _on_cpu(value) for name, value in given.items()}
        if on_device and not (given.get("device") is not None and not _is_cuda(given["device"])):
            return _DRAWS[func](*args, **moved)
        return func(*(_on_cpu(value) for value in args), **moved)


def _is_cuda(value: Any) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, int) or (isinstance(value, str) and value.partition(":")[0] == "cuda")


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device | str) and _is_cuda(value):
        return _CPU
    return value


def _randn(*size: Any, generator: torch.Generator | None = None, **kwargs: Any) -> torch.Tensor:
    return _normal(torch.empty(*size, **kwargs), generator=generator)


def _rand(*size: Any, generator: torch.Generator | None = None, **kwargs: Any) -> torch.Tensor:
    return _uniform(torch.empty(*size, **kwargs), generator=generator)


def _randn_like(tensor: torch.Tensor, *, generator: torch.Generator | None = None, **kwargs: Any) -> torch.Tensor:
    return _normal(torch.empty_like(tensor, **kwargs), generator=generator)


def _rand_like(tensor: torch.Tensor, *, generator: torch.Generator | None = None, **kwargs: Any) -> torch.Tensor:
    return _uniform(torch.empty_like(tensor, **kwargs), generator=generator)


def _normal(out: torch.Tensor, mean: float = 0, std: float = 1, *, generator: torch.Generator | None = None) -> torch.Tensor:
    return draws.normal(out, mean, std, generator or _default_generator)


def _uniform(out: torch.Tensor, low: float = 0, high: float = 1, *, generator: torch.Generator | None = None, **bounds: float) -> torch.Tensor:
    # Its first bound is called `from`, which no parameter can be.
    return draws.uniform(out, bounds.get("from", low), bounds.get("to", high), generator or _default_generator)


def _exponential(out: torch.Tensor, lambd: float = 1, *, generator: torch.Generator | None = None) -> torch.Tensor:
    return draws.exponential(out, lambd, generator or _default_generator)


def _multinomial(weights: torch.Tensor, num_samples: int, replacement: bool = False, *, generator: torch.Generator | None = None) -> torch.Tensor:
    if replacement and num_samples > 1:
        raise NotImplementedError("multinomial with replacement is not drawn as on a device")
    return draws.multinomial(weights, num_samples, generator or _default_generator)


_FACTORIES = frozenset({torch.randn, torch.rand})
_DRAWS: Mapping[Any, Callable[..., Any]] = {
    torch.randn: _randn,
    torch.rand: _rand,
    torch.randn_like: _randn_like,
    torch.rand_like: _rand_like,
    torch.multinomial: _multinomial,
    torch.Tensor.multinomial: _multinomial,
    torch.Tensor.normal_: _normal,
    torch.Tensor.uniform_: _uniform,
    torch.Tensor.exponential_: _exponential,
}

_PlainGenerator = torch.Generator
# torch.cuda.default_generators[0]; candidates in C++ learn of it through the environment.
_default_generator = _PlainGenerator()


class _Generator(torch.Generator):
    """torch.Generator, which may be asked for on a device."""

    device = _CPU

    def __new__(cls, device: Any = "cpu") -> _Generator:
        """Make a generator of the CPU that says of itself where it was asked for."""
        made = super().__new__(cls)
        made.device = _CUDA if _is_cuda(device) else _CPU
        return made


@contextlib.contextmanager
def device() -> Iterator[None]:
    """Let what runs inside believe in a device; afterwards torch is as it was."""
    before = {name: getattr(torch.cuda, name, None) for name in _CUDA_FUNCTIONS}
    _install_functions()
    try:
        with CudaMode():
            yield
    finally:
        torch.Generator = _PlainGenerator  # type: ignore[misc]
        for name, value in before.items():
            setattr(torch.cuda, name, value)


def install() -> None:
    """Let the rest of the process believe in a device."""
    _install_functions()
    CudaMode().__enter__()


def _install_functions() -> None:
    for name, value in _CUDA_FUNCTIONS.items():
        setattr(torch.cuda, name, value)
    torch.Generator = _Generator  # type: ignore[misc]
    _set_variable(_GENERATOR_VARIABLE, str(_default_generator._cdata))


def take_fault() -> Fault | None:
    """The first fault of a kernel since the last call, whether or not the candidate let its exception pass."""
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_char_p
    text = libc.getenv(_FAULT_VARIABLE)
    libc.unsetenv(_FAULT_VARIABLE)
    return parse(text.decode("utf-8", "replace")) if text else None


def set_order(seed: int) -> None:
    """Choose the order in which the threads of a block run between barriers; 0 is the natural one."""
    _set_variable(_ORDER_VARIABLE, str(seed))


def _set_variable(name: bytes, value: str) -> None:
    """Set a variable where the runtime's getenv reads it, in this process."""
    ctypes.CDLL(None).setenv(name, value.encode(), 1)


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
    "manual_seed": _default_generator.manual_seed,
    "manual_seed_all": _default_generator.manual_seed,
    "default_generators": (_default_generator,),
    "seed": _default_generator.seed,
    "seed_all": _default_generator.seed,
    "initial_seed": _default_generator.initial_seed,
    "get_rng_state": lambda _=None: _default_generator.get_state(),
    "set_rng_state": lambda state, _=None: _default_generator.set_state(state),
    "memory_allocated": lambda _=None: 0,
    "max_memory_allocated": lambda _=None: 0,
    "memory_reserved": lambda _=None: 0,
    "reset_peak_memory_stats": _nothing,
}
