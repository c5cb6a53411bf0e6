"""Global state of the interpreter and of torch that a kernel has no business changing."""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import functools
import gc
import json
import math
import operator
import os
import random
import signal
import socket
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

# Modules and classes whose functions are everyone's: a judge, a clock, a kernel's caller rest on them.
_OWNERS: tuple[Any, ...] = (
    *(builtins, ctypes, ctypes.CDLL, functools, json, math, operator, os, random, random.Random, socket.socket, time),
    *(torch, torch.autograd, torch.autograd.Function, torch.cuda, torch.cuda.Event, torch.cuda.Stream, torch.fft, torch.Generator, torch.linalg),
    *(torch.nn.functional, torch.nn.init, torch.random, torch.special, torch.Tensor, torch.testing),
    *(value for value in vars(torch.nn).values() if isinstance(value, type)),
)
_HOOKS = tuple(name for name in vars(torch.nn.modules.module) if name.startswith("_global_") and isinstance(getattr(torch.nn.modules.module, name), dict))
# torch.compile rewraps functions of torch with its own: code in torch's own files is no offence.
_TORCH_FOLDER = os.path.dirname(torch.__file__)
# What a class or a module has besides what can be called.
_DESCRIPTORS = (float, property, staticmethod, classmethod)
_code_of = operator.attrgetter("__code__")
_CODE_TYPES = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, type)
_SIGNALS = tuple(sorted(signal.valid_signals()))
# By these a signal comes later, when a clock has been read.
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
# Variables that change what a product of floats gives, or which code other programs load.
_VARIABLES = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "LD_PRELOAD", "LD_AUDIT", "PYTHONSTARTUP")
# Keys of the dispatcher under which an operator's own code lies; torch.compile registers under others.
_DISPATCH_KEYS = ("CPU", "CUDA", "AutogradCPU", "AutogradCUDA", "CompositeImplicitAutograd", "CompositeExplicitAutograd")

# Numbers of threads that nobody asks for, where they are not those of the cores.
_ODD_THREADS = (13, 11, 7)

# Bound before a candidate can patch them.
_is, _all = operator.is_, all
_get_affinity, _set_umask = os.sched_getaffinity, os.umask
_rounding_mode = ctypes.CDLL("libm.so.6").fegetround


def _settings() -> dict[str, Callable[[], Any]]:
    return {
        "default dtype": torch.get_default_dtype,
        "default device": lambda: str(torch.get_default_device()),
        "grad mode": torch.is_grad_enabled,
        "inference mode": torch.is_inference_mode_enabled,
        "autocast": lambda: (torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")),
        "deterministic mode": torch.are_deterministic_algorithms_enabled,
        "filling of new memory": lambda: torch.utils.deterministic.fill_uninitialized_memory,
        "float32 matmul precision": torch.get_float32_matmul_precision,
        "float32 precision of a backend": _backend_precisions,
        "cuda matmul TF32": lambda: torch.backends.cuda.matmul.allow_tf32,
        "cudnn TF32": lambda: torch.backends.cudnn.allow_tf32,
        "cuda matmul fp16 reduced precision": lambda: torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        "cuda matmul bf16 reduced precision": lambda: torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        "cudnn enabled": lambda: torch.backends.cudnn.enabled,
        "flush denormal": _flushes_denormals,
        "threads": torch.get_num_threads,
        "global module hooks": lambda: {name: len(getattr(torch.nn.modules.module, name)) for name in _HOOKS},
        "trace function": lambda: (sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()),
        "monitoring tools": _monitoring_tools,
        "signal handlers": lambda: [signal.getsignal(number) for number in _SIGNALS],
        "timer signals": lambda: [signal.getitimer(timer) != (0.0, 0.0) for timer in _TIMERS],
        "thread switch interval": sys.getswitchinterval,
        "garbage collector": gc.isenabled,
        "dispatch modes": lambda: torch._C._len_torch_dispatch_stack(),
        "function modes": lambda: torch._C._len_torch_function_stack(),
        "torch's operators": _overridden_operators,
        "rounding mode": _rounding_mode,
        "processor affinity": lambda: _get_affinity(0),
        "umask": _umask,
        "environment": lambda: [os.environ.get(name) for name in _VARIABLES],
    }


def _flushes_denormals() -> bool:
    return float(torch.tensor(1e-40, dtype=torch.float32).mul(1.0)) == 0.0


def _umask() -> int:
    """Read it in the only way there is, by setting it, for a moment, to one that gives away nothing."""
    mask = _set_umask(0o077)
    _set_umask(mask)
    return mask


def _backend_precisions() -> list[str]:
    """Read the newer switches, one a backend and operator; torch before 2.9 has none."""
    backends = torch.backends
    owners = [backends, backends.mkldnn, backends.cudnn, backends.cuda]
    owners += [getattr(owner, name, None) for owner in owners for name in ("matmul", "conv", "rnn")]
    return [str(getattr(owner, "fp32_precision", "")) for owner in owners]


def _monitoring_tools() -> list[str | None]:
    """Who watches by sys.monitoring, which Python before 3.12 has not."""
    monitoring = getattr(sys, "monitoring", None)
    return [] if monitoring is None else [monitoring.get_tool(number) for number in range(6)]


def _overridden_operators() -> list[str]:
    """Operators of torch's own for which Python code was registered."""
    return sorted(filter(_is_override, torch.library._impls))


@functools.cache
def _is_override(entry: str) -> bool:
    namespace, _, rest = entry.partition("/")
    return namespace == "aten" and rest.rpartition("/")[2] in _DISPATCH_KEYS


def prepare() -> None:
    """Find out before a fork what is the same in every one."""
    _own_code()
    _namespaces()
    _overridden_operators()


class GlobalState:
    """Remembers how things were before a candidate was loaded, and names what is different now."""

    def __init__(self) -> None:
        self._namespaces, self._known = _namespaces()
        self._own = _own_code()
        self._settings = {name: _read(setting) for name, setting in _settings().items()}

    @contextlib.contextmanager
    def odd_threads(self) -> Iterator[None]:
        """Import something under a number of threads that nobody sets: who sets one of his own shows, though it be the usual one.

        No model is to run so: torch.compile compiles anew for another number.
        """
        usual, cores = torch.get_num_threads(), os.cpu_count() or 1
        odd = next(number for number in _ODD_THREADS if number not in (usual, cores, cores - 1))
        torch.set_num_threads(odd)
        self._settings["threads"] = odd
        yield
        if torch.get_num_threads() == odd:
            torch.set_num_threads(usual)
            self._settings["threads"] = usual

    def rebase_settings(self) -> None:
        """Take the settings as they are now for how things should be."""
        self._settings = {name: _read(setting) for name, setting in _settings().items()}

    def changes(self) -> list[str]:
        """Name what differs: `torch.allclose` for a patched function, `default dtype` for a setting."""
        found = []
        for namespace in self._namespaces:
            found += namespace.changes(self._known)
        for owner, name, value, code in self._own:
            now = vars(owner).get(name)
            if now is not value or getattr(now, "__code__", None) is not code:
                place = f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else owner.__name__
                found.append(f"{place}.{name}")
        for name, setting in _settings().items():
            if _read(setting) != self._settings[name]:
                found.append(name)
        return found


class _Namespace:
    """The functions, classes and numbers of a module or class as they were; what came later is nobody's concern."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self._now = vars(owner)
        self._names = [name for name, value in self._now.items() if callable(value) or isinstance(value, _DESCRIPTORS)]
        self.values = [self._now[name] for name in self._names]
        # One may keep its identity and yet have its code swapped.
        coded = [(name, value) for name, value in zip(self._names, self.values, strict=True) if isinstance(value, types.FunctionType)]
        self._coded = [name for name, _ in coded]
        self._functions = [function for _, function in coded]
        self._codes = [function.__code__ for function in self._functions]
        bases = owner.__mro__[1:] if isinstance(owner, type) else ()
        # By a name of its own a class hides what it has from these.
        self._hidable = {name for base in bases for name in vars(base)} - set(self._now)

    def changes(self, known: set[int]) -> list[str]:
        """Name what is another object now; `known` has those that were in any namespace: none of them is a wrapper of torch's."""
        found = []
        now = self._now
        if not _all(map(_is, self.values, map(now.get, self._names))):
            found = [name for name, value in zip(self._names, self.values, strict=True) if now.get(name) is not value]
        if not _all(map(_is, self._codes, map(_code_of, self._functions))):
            found += [name for name, function, code in zip(self._coded, self._functions, self._codes, strict=True) if function.__code__ is not code]
        if not self._hidable.isdisjoint(now):
            found += [name for name in now if name in self._hidable]
        prefix = getattr(self._owner, "__qualname__", None) or self._owner.__name__
        return [f"{prefix}.{name}" for name in dict.fromkeys(found) if id(now.get(name)) in known or not _is_torchs_own(now.get(name))]


@functools.cache
def _namespaces() -> tuple[list[_Namespace], set[int]]:
    """Every namespace that is watched, and who is known in any."""
    found = [_Namespace(owner) for owner in _OWNERS]
    return found, {id(value) for namespace in found for value in namespace.values}


@functools.cache
def _own_code() -> tuple[tuple[Any, str, object, object], ...]:
    """Every function of kbench in this process, and every method: its owner, name, value and code."""
    return tuple(_find_own_code())


def _find_own_code() -> Iterator[tuple[Any, str, object, object]]:
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] != "kbench":
            continue
        for name, value in list(vars(module).items()):
            if isinstance(value, _CODE_TYPES):
                yield module, name, value, getattr(value, "__code__", None)
            if isinstance(value, type) and value.__module__ == module_name:
                yield from ((value, *member) for member in _members(value))


def _members(cls: type) -> list[tuple[str, object, object]]:
    return [(name, value, getattr(value, "__code__", None)) for name, value in list(vars(cls).items()) if callable(value)]


def _read(setting: Callable[[], Any]) -> Any:
    """Read a setting; torch refuses to tell some once old and new switches are mixed."""
    try:
        return setting()
    except RuntimeError as error:
        return f"unreadable: {error}"


def _is_torchs_own(function: object) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename.startswith(_TORCH_FOLDER)
