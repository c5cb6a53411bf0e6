"""Hold the verdicts of CUDA on the CPU against a GPU: right kernels, planted faults, and the candidates of this tree.

Usage: python3 scripts/cuda_on_cpu_against_device.py FOLDER [--candidates]

For an H100 or H200. The corpus of tests/worker/cuda_on_cpu is built with nvcc. Every right kernel must give the expected results there and
be clean under compute-sanitizer; of every planted fault it is told which of compute-sanitizer's tools see it. The
candidates, if asked for, are verified on the GPU, and must come out as they did on the CPU. Outputs go to FOLDER, and
record.json is what tests/worker/cuda_on_cpu/h200.json holds of it.
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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT / "tests/worker/cuda_on_cpu/corpus"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
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
# Racecheck's, as it is about who is there, not about where barriers stand.
SEEN_ELSEWHERE = {"early_cluster": "racecheck"}
# Beyond the tool on an H200: initcheck looks at global memory only; racecheck takes an atomic and a plain read for no
# hazard; synccheck knows nothing of a lane that never was; and nvcc moves a load to the one thread that uses it.
UNSEEN = frozenset({"part_filled", "early_total", "part_of_a_warp", "document_odd_block", "document_reused"})
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


def main(out: Path, *, candidates: bool) -> None:
    """Build, run, compare; whatever is known is printed at once."""
    sys.path.insert(0, str(ROOT))
    from tests.worker.cuda_on_cpu.corpus_table import KERNELS, PLANTED  # noqa: PLC0415 - children have no torch

    clock = time.monotonic()

    def tell(*words: object) -> None:
        print(f"{time.monotonic() - clock:5.0f} s ", *words, flush=True)

    given = {kernel.name: list(kernel.arguments()) for kernel in (*KERNELS, *PLANTED)}
    for name, arguments in given.items():
        (out / f"{name}.args").write_bytes(pickle.dumps([_plain(argument) for argument in arguments]))
    record: dict[str, Any] = {"right": [], "errors": {}, "planted": {}, "candidates": {}}
    tell("building")
    libraries = build(out)
    tell("built", len(libraries), "files")
    everything = [f"{libraries[kernel.file]}:{kernel.name}" for kernel in KERNELS]
    with ThreadPoolExecutor(8) as pool:
        jobs = {pool.submit(child, out, everything, ""): "right kernels, alone"}
        for fault in PLANTED:
            tool = "" if fault.name in UNSEEN else SEEN_ELSEWHERE.get(fault.name) or SEEN_BY.get(fault.reason, "")
            if tool:
                call = [f"{libraries[fault.file]}:fault_{fault.name}"]
                jobs[pool.submit(child, out, call, tool)] = f"planted {fault.name} ({fault.reason})"
            else:
                record["planted"][fault.name] = None
                tell(f"known verdict  planted {fault.name} ({fault.reason}): no tool looks for it")
        jobs |= {pool.submit(child, out, everything, tool): f"right kernels, {tool}" for tool in TOOLS}
        for job in as_completed(jobs):
            what = jobs[job]
            code, text = job.result()
            (out / f"{re.sub(r'[^a-z_]+', '-', what)}.txt").write_text(text)
            errors = _errors(code, text)
            if what.startswith("planted"):
                record["planted"][what.split()[1]] = errors if isinstance(errors, int) else "did not end"
                agrees = "agrees" if isinstance(errors, int) and errors > 0 else "NOT SEEN"
                tell(f"{agrees:<14} {what}: {errors} errors")
            elif what == "right kernels, alone":
                results = {kernel.name: _result(out, kernel, given[kernel.name]) for kernel in KERNELS}
                record["right"] = sorted(name for name, result in results.items() if result == "as expected")
                wrong = {name: result for name, result in results.items() if result != "as expected"}
                tell(f"{'DIFFERS' if wrong else 'agrees':<14} {what}: {len(results) - len(wrong)} of {len(results)} as expected; {wrong or text[-100:]}")
            else:
                record["errors"][what.split()[-1]] = errors
                tell(f"{'agrees' if errors == 0 else 'ALARM':<14} {what}: {errors} errors")
    if candidates:
        record["candidates"] = verify(tell)
    (out / "record.json").write_text(json.dumps(record, indent=1) + "\n")
    tell("done")


def verify(tell: Callable[..., None]) -> dict[str, str]:
    """Verify the candidates on the GPU; the status of each."""
    found = {}
    call = [sys.executable, "-m", "kbench", "verify", *CANDIDATES, "--device", "cuda", "--json"]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        verdict = json.loads(line)
        label = f"{verdict['task']}/{verdict['candidate']}"
        found[label] = verdict["status"]
        agrees = "agrees" if verdict["status"] == CANDIDATES[label] else "DIFFERS"
        tell(f"{agrees:<14} {label}: {verdict['device']} {verdict['status']} {verdict['reason']} {verdict['detail'][:300]}")
    return found


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


def child(out: Path, calls: list[str], tool: str) -> tuple[int, str]:
    """Call functions (`library:name`) in a process of their own, under one of compute-sanitizer's tools or none."""
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    prefix = [sanitizer, "--tool", tool, "--error-exitcode", "99"] if tool else []
    try:
        done = subprocess.run([*prefix, sys.executable, __file__, "--call", str(out), *calls], capture_output=True, text=True, timeout=90, check=False)
    except (subprocess.TimeoutExpired, FileNotFoundError) as error:
        return -1, str(error)
    return done.returncode, done.stdout + done.stderr


def run_calls(out: Path, calls: list[str]) -> None:
    """In the child: call each function on memory of the device, and keep what it leaves there."""
    codes = []
    for path, _, name in (call.rpartition(":") for call in calls):
        library = ctypes.CDLL(path)
        library.corpus_allocate.restype = ctypes.c_void_p
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
        run_calls(Path(sys.argv[2]), sys.argv[3:])
    else:
        folder = Path(sys.argv[1]).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        main(folder, candidates="--candidates" in sys.argv)
