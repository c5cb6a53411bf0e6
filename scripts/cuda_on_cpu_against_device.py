"""Hold the verdicts of CUDA on the CPU against a GPU: right kernels, planted faults, and the candidates of this tree.

Usage: python3 scripts/cuda_on_cpu_against_device.py FOLDER

For an H100 or H200. The corpus of tests/worker/cuda_on_cpu is built with nvcc. Every right kernel must give the expected results there and
be clean under compute-sanitizer; of every planted fault it is told which of compute-sanitizer's tools see it. The
candidates are verified on the GPU, and must come out as they did on the CPU. What was seen goes to FOLDER/against.json.
"""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT / "tests/worker/cuda_on_cpu/corpus"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
# For all of it.
TIME_S = 220
# What a tool can see at all of what is found on the CPU; races in global memory and reads of fresh shared memory are
# beyond all of them, and an index beyond a variable of a thread's own that stays within its frame is, too.
SEEN_BY = {
    "cuda:global-bounds": "memcheck",
    "cuda:shared-bounds": "memcheck",
    "cuda:misaligned": "memcheck",
    "cuda:assert": "memcheck",
    "cuda:shared-race": "racecheck",
    "cuda:barrier": "synccheck",
    "cuda:shuffle": "synccheck",
    "cuda:uninitialized": "initcheck",
}
# The verdicts on the CPU (`kbench verify --device cpu`), which tests/worker/cuda_on_cpu holds.
CANDIDATES = {
    "mixture_reparam/document": "pass",
    "mixture_reparam/single_launch": "pass",
    "cvae/document": "pass",
    "cvae/fused": "pass",
}
MEMORY = r"""
#include <cuda_runtime.h>
extern "C" void* corpus_allocate(size_t bytes) { void* p = nullptr; return cudaMalloc(&p, bytes) ? nullptr : p; }
extern "C" int corpus_write(void* to, const void* from, size_t bytes) { return cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice); }
extern "C" int corpus_read(void* to, const void* from, size_t bytes) { return cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost); }
"""


def main(out: Path) -> None:
    """Build, run, compare, print."""
    sys.path.insert(0, str(ROOT))
    from tests.worker.cuda_on_cpu.corpus_table import KERNELS, PLANTED  # noqa: PLC0415 - children have no torch

    started = time.monotonic()
    verify = subprocess.Popen(  # the longest part, beside the rest
        [sys.executable, "-m", "kbench", "verify", *CANDIDATES, "--device", "cuda", "--json"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    libraries = build(out)
    print(f"built {len(libraries)} files in {time.monotonic() - started:.0f} s", flush=True)
    given = {kernel.name: list(kernel.arguments()) for kernel in (*KERNELS, *PLANTED)}
    for name, arguments in given.items():
        (out / f"{name}.args").write_bytes(pickle.dumps([_plain(argument) for argument in arguments]))
    found: dict[str, object] = {"right": {}, "planted": {}, "clean": {}, "candidates": {}}
    with ThreadPoolExecutor(8) as pool:
        by_file = {file: [k.name for k in KERNELS if k.file == file] for file in sorted({k.file for k in KERNELS})}
        clean = {(file, tool): pool.submit(child, out, libraries[file], names, tool) for file, names in by_file.items() for tool in TOOLS}
        planted = {(p.name, tool): pool.submit(child, out, libraries[p.file], [f"fault_{p.name}"], tool) for p in PLANTED for tool in (*TOOLS, "")}
        for file, names in by_file.items():
            code, text = child(out, libraries[file], names, "")
            (out / f"{file}.right.txt").write_text(text)
            for kernel in (k for k in KERNELS if k.file == file):
                found["right"][kernel.name] = _result(out, kernel, given[kernel.name]) if code == 0 else f"exit {code}: {text[-300:]}"
        found["clean"] = {f"{file} {tool}": _errors(*job.result()) for (file, tool), job in clean.items()}
        found["planted"] = {f"{name} {tool or 'alone'}": _errors(*job.result()) for (name, tool), job in planted.items()}
        for (name, tool), job in (*planted.items(), *clean.items()):
            (out / f"{name}.{tool or 'alone'}.txt").write_text(job.result()[1])
    wrong = {name: result for name, result in found["right"].items() if result != "as expected"}
    print(f"right kernels: {len(found['right']) - len(wrong)} of {len(KERNELS)} as expected on the GPU; {wrong}")
    print("clean under each tool:", {name: errors for name, errors in found["clean"].items() if errors} or "all")
    for fault in PLANTED:
        seen = {tool: found["planted"][f"{fault.name} {tool}"] for tool in TOOLS}
        expected = "no tool" if fault.name == "part_filled" else SEEN_BY.get(fault.reason, "no tool")
        count = seen.get(expected, 0)
        agrees = "known verdict" if expected not in TOOLS else "agrees" if isinstance(count, int) and count > 0 else "NOT SEEN"
        print(f"  {agrees:<14}{fault.name:<22}{fault.reason:<20} expected of {expected}; seen: {seen}; alone: {found['planted'][fault.name + ' alone']}")
    print(f"corpus done after {time.monotonic() - started:.0f} s", flush=True)
    try:
        text, _ = verify.communicate(timeout=max(1, TIME_S - (time.monotonic() - started)))
    except subprocess.TimeoutExpired:
        verify.terminate()
        text, _ = verify.communicate()
        print("kbench verify took too long; what it had found:")
    for line in text.splitlines():
        verdict = json.loads(line)
        label = f"{verdict['task']}/{verdict['candidate']}"
        found["candidates"][label] = verdict["status"]
        agrees = "agrees" if verdict["status"] == CANDIDATES[label] else "DIFFERS"
        print(f"  {agrees:<10}{label} {verdict['device']} {verdict['status']} {verdict['reason']} {verdict['detail'][:300]}")
    (out / "against.json").write_text(json.dumps(found, indent=1))
    print(f"done after {time.monotonic() - started:.0f} s")


def build(out: Path) -> dict[str, Path]:
    """Compile every file of the corpus, side by side, each with functions for memory."""
    nvcc = shutil.which("nvcc") or f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/bin/nvcc"
    (out / "allocation.cu").write_text(MEMORY)

    def compiled(path: Path) -> tuple[str, Path]:
        target = out / f"{path.stem}.so"
        call = [nvcc, "-std=c++17", "-arch=sm_90", "-lineinfo", "-shared", "-Xcompiler", "-fPIC", path, out / "allocation.cu", "-o", target]
        done = subprocess.run([str(part) for part in call], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{path.name}: {done.stderr[:3000]}")
        return path.stem, target

    with ThreadPoolExecutor(16) as pool:
        return dict(pool.map(compiled, sorted(CORPUS.glob("*.cu"))))


def child(out: Path, library: Path, names: list[str], tool: str) -> tuple[int, str]:
    """Call functions in a process of their own, under one of compute-sanitizer's tools or none."""
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    prefix = [sanitizer, "--tool", tool, "--error-exitcode", "99"] if tool else []
    call = [*prefix, sys.executable, __file__, "--call", str(out), str(library), *names]
    try:
        done = subprocess.run(call, capture_output=True, text=True, timeout=100, check=False)
    except (subprocess.TimeoutExpired, FileNotFoundError) as error:
        return -1, str(error)
    return done.returncode, done.stdout + done.stderr


def run_calls(out: Path, path: Path, names: list[str]) -> None:
    """In the child: call each function on memory of the device, and keep what it leaves there."""
    library = ctypes.CDLL(str(path))
    library.corpus_allocate.restype = ctypes.c_void_p
    codes = []
    for name in names:
        arguments = pickle.loads((out / f"{name.removeprefix('fault_')}.args").read_bytes())
        plain, memory = [], []
        for argument in arguments:
            if isinstance(argument, int):
                plain.append(ctypes.c_int(argument))
                continue
            data, is_written = argument
            place = ctypes.c_void_p(library.corpus_allocate(ctypes.c_size_t(len(data))))
            if is_written:
                library.corpus_write(place, data, ctypes.c_size_t(len(data)))
            plain.append(place)
            memory.append((place, len(data)))
        codes.append(getattr(library, name)(*plain))
        results = []
        for place, size in memory:
            buffer = ctypes.create_string_buffer(size)
            library.corpus_read(buffer, place, ctypes.c_size_t(size))
            results.append(buffer.raw)
        if not name.startswith("fault_"):
            (out / f"{name}.results").write_bytes(pickle.dumps(results))
    print("codes", codes)
    sys.exit(0 if not any(codes) else 3)


def _plain(argument: object) -> object:
    """A tensor as its bytes and whether they are to be written: what holds the mark of fresh memory is left fresh."""
    if isinstance(argument, int):
        return argument
    data = argument.numpy().tobytes() if str(argument.dtype) != "torch.bfloat16" else argument.view(_int16()).numpy().tobytes()
    words = len(data) // 4
    return data, words == 0 or data[: 4 * words] != (0x7FB37FB3).to_bytes(4, "little") * words


def _int16() -> object:
    import torch  # noqa: PLC0415

    return torch.int16


def _result(out: Path, kernel: object, given: list[object]) -> str:
    """Compare what a kernel left with what the reference makes of its arguments."""
    import torch  # noqa: PLC0415

    from tests.worker.cuda_on_cpu.corpus_table import UNORDERED  # noqa: PLC0415

    results = iter(pickle.loads((out / f"{kernel.name}.results").read_bytes()))
    after = [argument if isinstance(argument, int) else _like(argument, next(results)) for argument in given]
    try:
        for place, expected in zip(kernel.outputs, kernel.expected(*given), strict=True):
            actual = after[place]
            if kernel.name in UNORDERED and actual.dim() == 1:
                actual = actual.sort().values
            torch.testing.assert_close(actual, expected, atol=kernel.tolerance, rtol=kernel.tolerance)
    except AssertionError as error:
        return str(error)[:400]
    return "as expected"


def _like(tensor: object, data: bytes) -> object:
    import torch  # noqa: PLC0415

    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(tensor.dtype).reshape(tensor.shape)


def _errors(code: int, text: str) -> int | str:
    """How many errors a tool counts, or how the process ended."""
    counted = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", text)
    return int(counted[1]) if counted else 0 if code == 0 else f"exit {code}"


if __name__ == "__main__":
    if sys.argv[1] == "--call":
        run_calls(Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
    else:
        folder = Path(sys.argv[1]).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        main(folder)
