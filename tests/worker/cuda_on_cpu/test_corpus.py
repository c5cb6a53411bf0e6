"""Kernels of the kinds that people write: right ones run right and without alarm, each planted fault is found."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from kbench.worker.build import cuda_on_cpu
from kbench.worker.cuda_on_cpu import emulation, prepare
from kbench.worker.cuda_on_cpu.translate import translate
from tests.worker.cuda_on_cpu.corpus_table import KERNELS, PLANTED, UNORDERED, Argument, Kernel, Planted, random, unwritten

CORPUS = Path(__file__).parent / "corpus"
# Threads in their natural order and in two others: what depends on the order shows.
ORDERS = (0, 1, 2)
# cudaErrorInvalidValue and cudaErrorInvalidConfiguration.
INVALID_VALUE, INVALID_CONFIGURATION = 1, 9

Library = Callable[[str], ctypes.CDLL]

_NOTE = 'extern "C" void corpus_note(const void* p, size_t n) { ::kbench_cuda::note_memory(p, n); }\n'


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """Builds a file of the corpus for the CPU, once."""
    folder = tmp_path_factory.mktemp("corpus")
    compiler = [os.environ.get("CXX", "g++"), "-std=c++17", "-fPIC", f"-I{cuda_on_cpu.INCLUDE}", f"-I{CORPUS}"]
    runtime = Path(prepare.__file__).parent / "runtime" / "runtime.cpp"
    subprocess.run([*compiler, *cuda_on_cpu.flags_of("x.runtime.cpp"), "-c", runtime, "-o", folder / "runtime.o"], check=True)
    built: dict[str, ctypes.CDLL] = {}

    def library(name: str) -> ctypes.CDLL:
        if name not in built:
            path = CORPUS / f"{name}.cu"
            translation = translate(path.read_text(), filename=path.name)
            assert translation.unsupported == ()
            source, shared = folder / f"{name}.cpp", folder / f"{name}.so"
            source.write_text(translation.text + _NOTE)
            subprocess.run([*compiler, *cuda_on_cpu.flags_of("x.cuda_on_cpu.cpp"), "-c", source, "-o", folder / f"{name}.o"], check=True)
            subprocess.run([*compiler, "-shared", folder / f"{name}.o", folder / "runtime.o", "-o", shared, "-lpthread"], check=True)
            built[name] = ctypes.CDLL(str(shared))
        return built[name]

    return library


@pytest.fixture(scope="module")
def on_device(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """Builds a file of the corpus with nvcc, once."""
    folder = tmp_path_factory.mktemp("corpus")
    nvcc = shutil.which("nvcc") or f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/bin/nvcc"
    built: dict[str, ctypes.CDLL] = {}

    def library(name: str) -> ctypes.CDLL:
        if name not in built:
            shared = folder / f"{name}.so"
            call = [nvcc, "-std=c++17", "-arch=native", "-shared", "-Xcompiler", "-fPIC", CORPUS / f"{name}.cu", "-o", shared]
            subprocess.run(call, check=True)
            built[name] = ctypes.CDLL(str(shared))
        return built[name]

    return library


def call(library: ctypes.CDLL, name: str, arguments: Sequence[Argument]) -> int:
    """Call a function of the corpus with the memory of tensors."""
    note = getattr(library, "corpus_note", None)
    plain: list[object] = []
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            if note is not None:
                note(ctypes.c_void_p(argument.data_ptr()), ctypes.c_size_t(argument.nbytes))
            plain.append(ctypes.c_void_p(argument.data_ptr()))
        else:
            plain.append(ctypes.c_int(argument))
    code = getattr(library, name)(*plain)
    assert isinstance(code, int)
    return code


def check_results(kernel: Kernel, arguments: Sequence[Argument], given: Sequence[Argument]) -> None:
    """Compare every output with what the reference makes of the arguments as they were."""
    for place, expected in zip(kernel.outputs, kernel.expected(*given), strict=True):
        actual = arguments[place]
        assert isinstance(actual, torch.Tensor)
        actual = actual.cpu()
        if kernel.name in UNORDERED and actual.dim() == 1:
            actual = actual.sort().values
        torch.testing.assert_close(actual, expected, atol=kernel.tolerance, rtol=kernel.tolerance)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_right_kernel_runs_right_in_every_order(kernel: Kernel, on_cpu: Library) -> None:
    for order in ORDERS:
        emulation.set_order(order)
        arguments = kernel.arguments()
        given = [argument.clone() if isinstance(argument, torch.Tensor) else argument for argument in arguments]
        code = call(on_cpu(kernel.file), kernel.name, arguments)
        assert emulation.take_fault() is None
        assert code == 0
        check_results(kernel, arguments, given)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_planted_fault_is_found_at_its_line_in_every_order(planted: Planted, on_cpu: Library) -> None:
    """A race has two ends, of which either may come last; the marks in the source name the ends that count."""
    lines = (CORPUS / f"{planted.file}.cu").read_text().splitlines()
    marked = {i + 1 for i, line in enumerate(lines) if line.endswith((f"fault: {planted.name}", f"either: {planted.name}"))}
    for order in ORDERS:
        emulation.set_order(order)
        code = call(on_cpu(planted.file), f"fault_{planted.name}", planted.arguments())
        fault = emulation.take_fault()
        assert code == -1
        assert fault is not None
        assert (fault.reason, fault.file) == (planted.reason, f"{planted.file}.cu")
        assert fault.line in marked, str(fault)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("refused_threads", INVALID_CONFIGURATION),
        ("refused_shared", INVALID_VALUE),
        ("refused_empty", INVALID_CONFIGURATION),
    ],
)
def test_a_launch_that_a_device_refuses_gives_its_error(name: str, code: int, on_cpu: Library) -> None:
    assert call(on_cpu("faults"), name, (random(8), unwritten(8), 8)) == code
    assert emulation.take_fault() is None


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_right_kernel_runs_right_on_a_device(kernel: Kernel, on_device: Library) -> None:
    given = kernel.arguments()
    arguments = [argument.cuda() if isinstance(argument, torch.Tensor) else argument for argument in given]
    assert call(on_device(kernel.file), kernel.name, arguments) == 0
    check_results(kernel, arguments, given)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("refused_threads", INVALID_CONFIGURATION),
        ("refused_shared", INVALID_VALUE),
        ("refused_empty", INVALID_CONFIGURATION),
    ],
)
def test_a_device_refuses_the_same_launches(name: str, code: int, on_device: Library) -> None:
    arguments = (random(8).cuda(), unwritten(8).cuda(), 8)
    assert call(on_device("faults"), name, arguments) == code
