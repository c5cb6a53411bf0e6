"""Global state of the interpreter and of torch that a kernel has no business changing."""

from __future__ import annotations

import builtins
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

# (owner, attribute): functions that a judge or a clock could rest on.
_WATCHED: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (time, ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns", "process_time", "sleep")),
    (torch, ("allclose", "isclose", "equal", "manual_seed", "seed", "randn", "rand", "empty", "where", "all", "any")),
    (torch.testing, ("assert_close",)),
    (torch.random, ("manual_seed", "seed")),
    (torch.Generator, ("manual_seed", "seed")),
    (torch.cuda, ("synchronize", "Event", "Stream", "current_stream", "manual_seed", "manual_seed_all")),
    (torch.cuda.Event, ("elapsed_time", "record", "synchronize", "query", "wait")),
    (torch.cuda.Stream, ("synchronize", "query", "wait_stream", "wait_event")),
    (torch.Tensor, ("__eq__", "__torch_function__", "allclose", "clone", "copy_", "cpu", "detach", "equal", "to", "numpy")),
    (torch.nn.Module, ("__call__", "_call_impl", "load_state_dict", "state_dict", "to")),
    (builtins, ("all", "any", "abs", "max", "min", "sum", "len", "open", "print", "isinstance", "type", "id", "zip")),
    (json, ("dumps", "dump", "loads", "load")),
    (os, ("_exit", "fork", "kill")),
)
_HOOKS = tuple(
    name
    for name in vars(torch.nn.modules.module)
    if name.startswith("_global_") and isinstance(getattr(torch.nn.modules.module, name), dict)
)
# torch.compile rewraps functions of torch with its own: code in torch's own files is no offence.
_TORCH_FOLDER = os.path.dirname(torch.__file__)


def _settings() -> dict[str, Callable[[], Any]]:
    return {
        "default dtype": torch.get_default_dtype,
        "default device": lambda: str(torch.get_default_device()),
        "grad mode": torch.is_grad_enabled,
        "inference mode": torch.is_inference_mode_enabled,
        "deterministic mode": torch.are_deterministic_algorithms_enabled,
        "float32 matmul precision": torch.get_float32_matmul_precision,
        "cuda matmul TF32": lambda: torch.backends.cuda.matmul.allow_tf32,
        "cudnn TF32": lambda: torch.backends.cudnn.allow_tf32,
        "cuda matmul fp16 reduced precision": lambda: torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        "cuda matmul bf16 reduced precision": lambda: torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        "cudnn enabled": lambda: torch.backends.cudnn.enabled,
        "flush denormal": _flushes_denormals,
        "threads": torch.get_num_threads,
        "global module hooks": lambda: {name: len(getattr(torch.nn.modules.module, name)) for name in _HOOKS},
        "trace function": lambda: (sys.gettrace() is not None, sys.getprofile() is not None),
        "garbage collector": gc.isenabled,
        "dispatch modes": lambda: torch._C._len_torch_dispatch_stack(),
        "function modes": lambda: torch._C._len_torch_function_stack(),
    }


def _flushes_denormals() -> bool:
    return float(torch.tensor(1e-40, dtype=torch.float32).mul(1.0)) == 0.0


class GlobalState:
    """Remembers how things were before a candidate was loaded, and names what is different now."""

    def __init__(self) -> None:
        self._functions = {(owner, name): _identity(getattr(owner, name, None)) for owner, names in _WATCHED for name in names}
        self._settings = {name: read() for name, read in _settings().items()}

    def rebase_settings(self) -> None:
        """Take the settings as they are now for how things should be."""
        self._settings = {name: read() for name, read in _settings().items()}

    def changes(self) -> list[str]:
        """Name what differs: `torch.allclose` for a patched function, `default dtype` for a setting."""
        found = []
        for (owner, name), identity in self._functions.items():
            now = getattr(owner, name, None)
            if _identity(now) != identity and not _is_torchs_own(now):
                found.append(f"{getattr(owner, '__qualname__', None) or owner.__name__}.{name}")
        for name, read in _settings().items():
            if read() != self._settings[name]:
                found.append(name)
        return found


def _identity(function: object) -> tuple[int, int]:
    """A function may keep its identity and yet have its code swapped."""
    return id(function), id(getattr(function, "__code__", None))


def _is_torchs_own(function: object) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename.startswith(_TORCH_FOLDER)
