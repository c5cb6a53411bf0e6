"""What does a process do otherwise in which CUDA runs on the CPU: how it builds, runs and hands over tensors?"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from kbench.worker import seeding, tensors
from kbench.worker.build.request import BuildRequest
from kbench.worker.cuda_on_cpu import draws, faults, prepare, python_side
from kbench.worker.cuda_on_cpu.faults import Fault
from kbench.worker.cuda_on_cpu.features import UnsupportedFeatureError

# Where the runtime leaves the first fault of the process, for who catches the exception and says nothing.
_FAULT_VARIABLE = b"KBENCH_CUDA_FAULT"
# Where it keeps what cudaGetLastError would say, and reads the order of threads and the default generator.
_ERROR_VARIABLE = b"KBENCH_CUDA_ERROR"
_ORDER_VARIABLE = b"KBENCH_CUDA_ORDER"
_GENERATOR_VARIABLE = b"KBENCH_CUDA_GENERATOR"


class CudaFaultError(RuntimeError):
    """A kernel did what it must not do; `kbench_reason` is one of `faults.REASONS`."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.kbench_reason = fault.reason


def start() -> None:
    """Give this process a generator of the device, seeded and compared like its others."""
    seeding.add_generator("cuda", draws.default_generator)
    _set_variable(_GENERATOR_VARIABLE, str(draws.default_generator._cdata))


class Emulation:
    """A candidate's process in which CUDA runs on the CPU; `file` is the candidate's own."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._requests: list[BuildRequest] = []
        self._calls = 0
        self._arguments: list[tuple[torch.Tensor, torch.Tensor]] = []
        start()

    def prepare(self, request: BuildRequest) -> BuildRequest:
        """Make what the candidate wants built something to build for the CPU.

        Raises:
            UnsupportedFeatureError: it uses what cannot be run here.
        """
        self._requests.append(request)
        prepared = prepare.prepare(request)
        if prepared.unsupported:
            found = [replace(item, file=where[0], line=where[1]) for item in prepared.unsupported for where in [self._place(item.file, item.line)]]
            raise UnsupportedFeatureError("; ".join(dict.fromkeys(f"{item.feature} ({item.file}:{item.line})" for item in found)))
        return prepared.request

    @contextlib.contextmanager
    def running(self, *, draws_there: bool) -> Iterator[None]:
        """Run code of the candidate's, threads in another order each time.

        Raises:
            CudaFaultError: a kernel did what it must not do, whether or not its exception got out.
            UnsupportedFeatureError: likewise.
        """
        # The first call is in the natural order of threads, for whoever reads what it prints.
        _set_variable(_ORDER_VARIABLE, str(self._calls))
        self._calls += draws_there
        try:
            with python_side.device(draws_there=draws_there):
                yield
        finally:
            fault = take_fault()
            if fault is not None:
                raise CudaFaultError(self._located(fault)) from None
            if (unsupported := UnsupportedFeatureError.first) is not None:
                raise unsupported

    def rebuild(self, spec: tensors.Spec, arena: torch.Tensor, *, shift_bytes: int) -> Any:
        """Make the inputs of a call, each with memory of its own, whose end shows."""
        self._arguments.clear()

        def view(leaf: tensors.Spec) -> torch.Tensor:
            given = tensors.view_of(arena, leaf, shift_bytes=shift_bytes)
            own = tensors.clone(given)
            self._arguments.append((given, own))
            return own

        return tensors.rebuild(spec, view)

    def hand_back(self) -> None:
        """Write the inputs of the last call, as they are now, where the judge looks."""
        for given, own in self._arguments:
            tensors.span(given).copy_(tensors.span(own))
        self._arguments.clear()

    def take_error(self) -> str:
        """What cudaGetLastError would say, or nothing; afterwards there is no error."""
        return _take_variable(_ERROR_VARIABLE)

    def _located(self, fault: Fault) -> Fault:
        file, line = self._place(fault.file, fault.line, near=fault.kernel)
        return replace(fault, file=file, line=line)

    def _place(self, file: str, line: int, *, near: str = "") -> tuple[str, int]:
        """A place in the candidate's own file, where that can be found, in place of one in a string of its."""
        try:
            text = self._file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return file, line
        for request in reversed(self._requests):
            found = faults.line_in_candidate(text, [source.text for source in request.sources], file, line, near=near)
            if found is not None:
                return self._file.name, found
        return (Path(file).name if file.startswith("/") else file), line


def take_fault() -> Fault | None:
    """The first fault of a kernel since the last call, whether or not the candidate let its exception pass."""
    return faults.parse(_take_variable(_FAULT_VARIABLE))


def set_order(seed: int) -> None:
    """Choose the order in which the threads of a block run between barriers; 0 is the natural one."""
    _set_variable(_ORDER_VARIABLE, str(seed))


def _set_variable(name: bytes, value: str) -> None:
    """Set a variable where the runtime's getenv reads it, in this process."""
    ctypes.CDLL(None).setenv(name, value.encode(), 1)


def _take_variable(name: bytes) -> str:
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_char_p
    value = libc.getenv(name)
    libc.unsetenv(name)
    return value.decode("utf-8", "replace") if value else ""
