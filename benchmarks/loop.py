"""How long from an edit to a verdict, and how many candidates an hour? Every demand on kbench's speed, measured on this machine.

    python benchmarks/loop.py [--only NAME ...] [--cpu N] [--mixed N] [--cuda N] [--rows N]

Prints a row as soon as it is known and exits with 1 where a figure falls short. Every kbench is a process of its own in
a tree made for it; builds are in `build.py`, beside torch's own load_inline. KernelBench's evaluation of the same CUDA
candidate stands beside kbench's where it is installed, or where KERNELBENCH names its checkout.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import os
import platform
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Every process of this benchmark has it in its environment.
TOKEN = secrets.token_hex(8)
GPU = Path("/dev/nvidiactl").exists()
# The demands are for so many cores.
CORES = sorted(os.sched_getaffinity(0))[:2]

REFERENCE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)

    def forward(self, x):
        return torch.relu(self.linear(x)) * 2 + 1

def get_inputs():
    return [torch.randn(64, 64)]

def get_init_inputs():
    return []
"""
PLAIN = REFERENCE.split("def get_inputs")[0].replace("Model(", "ModelNew(")
# What a fifth of the candidates of a large run do instead, when they are called.
FAULTS = {
    "segfault": "import ctypes; ctypes.string_at(0)",
    "abort": "import os; os.abort()",
    "exit": "import os; os._exit(0)",
    "raise": "raise ValueError('no')",
    "kill": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "flood": "import os\n        while True: os.write(1, b'x' * 65536)",
    "flood_stderr": "import sys\n        while True: print('y' * 4096, file=sys.stderr)",
    "hang": "while True: pass",
    "sleep": "import time; time.sleep(1e6)",
    "recursion": "return self.forward(x)",
}

CUDA_REFERENCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2 + 1

def get_inputs():
    return [torch.randn(1 << 20)]

def get_init_inputs():
    return []
"""
CUDA = '''
import torch
from torch.utils.cpp_extension import load_inline

_SOURCE = r"""
#include <torch/extension.h>

__global__ void affine(const float* x, float* y, long n) {
    for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < n; i += (long)gridDim.x * blockDim.x) y[i] = x[i] * 2.0f + 1.0f;
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    affine<<<%(blocks)d, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
"""
_extension = load_inline(
    name="affine_%(blocks)d", cpp_sources="torch::Tensor forward(torch::Tensor x);", cuda_sources=_SOURCE, functions=["forward"]
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return _extension.forward(x)
'''
KERNELBENCH = """
import sys, time
sys.path.insert(0, sys.argv[3])
try:
    from kernelbench.eval import eval_kernel_against_ref
except ImportError:
    from src.eval import eval_kernel_against_ref
print(eval_kernel_against_ref(open(sys.argv[1]).read(), open(sys.argv[2]).read(), num_correct_trials=5, num_perf_trials=50, measure_performance=True))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure; `most` is None where it is only told."""

    name: str
    figure: float
    unit: str = "s"
    most: float | None = None
    note: str = ""

    @property
    def is_short(self) -> bool:
        return self.most is not None and not self.figure <= self.most

    def __str__(self) -> str:
        demand = "" if self.most is None else f"at most {self.most:.4g} {self.unit}"
        verdict = "" if self.most is None else "SHORT" if self.is_short else "ok"
        return f"{self.name:58} {f'{self.figure:.4g} {self.unit}':>14}  {demand:22} {verdict:6} {self.note}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command ended: its wall time and what its own process, without its children, took of memory."""

    code: int
    seconds: float
    peak_mib: float
    out: str
    err: str


class Tree:
    """A tree of one task and its candidates, with a cache and a runtime folder of its own."""

    def __init__(self, reference: str, candidates: Mapping[str, str]) -> None:
        # A socket's path is short.
        self._folder = tempfile.TemporaryDirectory(prefix="kbench-loop-", dir="/tmp")
        self.root = Path(self._folder.name)
        self.environment = {
            **os.environ,
            "KBENCH_LOOP": TOKEN,
            "KBENCH_CACHE_DIR": str(self.root / "cache"),
            "XDG_RUNTIME_DIR": self._folder.name,
            "KBENCH_WARM_S": "600",
            "PYTHONPATH": str(ROOT),
        }
        self.write("references/t.py", reference)
        self.write("kbench.toml", "[time]\nbaselines = []\n")
        for name, text in candidates.items():
            self.write(f"candidates/t/{name}.py", text)

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def kbench(self, *arguments: str, cores: Sequence[int] | None = None) -> Ended:
        return run([sys.executable, "-m", "kbench", *arguments], folder=self.root, environment=self.environment, cores=cores)

    def verdicts(self) -> Counter[str]:
        with (self.root / "results/verdicts.csv").open() as file:
            return Counter(row["status"] + (f": {row['reason']}" if row["reason"] else "") for row in csv.DictReader(file))

    def close(self) -> None:
        self.kbench("warm", "--end")
        self._folder.cleanup()


def run(command: Sequence[str], *, folder: Path, environment: Mapping[str, str], cores: Sequence[int] | None = None) -> Ended:
    """Run a command to its end; its memory is read while it lasts."""
    started = time.monotonic()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=out, stderr=err, preexec_fn=(lambda: os.sched_setaffinity(0, cores)) if cores else None
        )
        peak_mib = 0.0
        while process.poll() is None:
            peak_mib = max(peak_mib, _peak_mib(process.pid))
            time.sleep(0.01)
        seconds = time.monotonic() - started
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read())
    return Ended(code=process.returncode, seconds=seconds, peak_mib=peak_mib, out=texts[0], err=texts[1])


def _peak_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0)


def importing() -> float:
    """Seconds that a fresh interpreter takes to import torch; the median of three, files in memory."""
    command = [sys.executable, "-c", "import torch"]
    return statistics.median([run(command, folder=ROOT, environment=os.environ).seconds for _ in range(4)][1:])


def one(arguments: argparse.Namespace) -> Iterator[Row]:
    """One candidate that has not changed: what an engineer waits for."""
    import_s = importing()
    yield Row(name="import torch, fresh interpreter", figure=import_s)
    tree = Tree(REFERENCE, {"plain": PLAIN})
    try:
        cold = [expect(tree.kbench("verify", "--device", "cpu", "--no-warm"), 0).seconds for _ in range(3)]
        yield Row(name="verify one plain candidate on the CPU, cold", figure=statistics.median(cold), most=import_s + 1.0)
        expect(tree.kbench("verify", "--device", "cpu"), 0)
        warm = [expect(tree.kbench("verify", "--device", "cpu"), 0).seconds for _ in range(5)]
        yield Row(name="verify one plain candidate on the CPU, warm", figure=statistics.median(warm), most=import_s + 1.0)
    finally:
        tree.close()


def kernelbench(tree: Tree) -> Iterator[Row]:
    """KernelBench's evaluation of the same candidate, in a new process as it is run."""
    checkout = os.environ.get("KERNELBENCH", "")
    files = [str(tree.root / name) for name in ("references/t.py", "candidates/t/c000.py")]
    environment = {**os.environ, "TORCH_EXTENSIONS_DIR": str(tree.root / "torch")}
    for what in ("with its build", "built before"):
        ended = run([sys.executable, "-c", KERNELBENCH, *files, checkout], folder=tree.root, environment=environment)
        if ended.code:
            print("KernelBench is not measured:", (ended.err.strip().splitlines() or ["no reason given"])[-1][:100])
            return
        yield Row(name=f"KernelBench's evaluation of the same candidate, {what}", figure=ended.seconds)


def many(arguments: argparse.Namespace) -> Iterator[Row]:
    """Many plain candidates of one task on two cores, each in its own process."""
    count = arguments.cpu
    tree = Tree(REFERENCE, {f"c{i:04}": f"# {i}\n{PLAIN}" for i in range(count)})
    try:
        first = statistics.median(expect(tree.kbench("verify", "t/c0000", "--device", "cpu", "--no-warm", cores=CORES), 0).seconds for _ in range(3))
        ended = expect(tree.kbench("verify", "--device", "cpu", "--json", "--no-warm", cores=CORES), 0)
        each = (ended.seconds - first) / (count - 1)
        name = f"verify {count} plain candidates on {len(CORES)} cores, each"
        yield Row(name=name, figure=each, most=0.2, note=f"{ended.seconds:.1f} s in all, {first:.1f} s for the first")
        yield Row(name="their parent's memory", figure=ended.peak_mib, unit="MiB", most=300)
        again = expect(tree.kbench("verify", "--device", "cpu", "--json", "--resume", "--no-warm", cores=CORES), 0)
        yield Row(name=f"--resume where all {count} have a verdict", figure=again.seconds)
    finally:
        tree.close()


def mixed(arguments: argparse.Namespace) -> Iterator[Row]:
    """A large run in which every fifth candidate crashes, hangs or floods."""
    count = arguments.mixed
    names = list(FAULTS)
    candidates = {}
    for i in range(count):
        fault = names[i // 5 % len(names)] if i % 5 == 0 else ""
        body = PLAIN.replace("return torch", f"{FAULTS[fault]}\n        return torch") if fault else PLAIN
        candidates[f"c{i:04}_{fault or 'plain'}"] = f"# {i}\n{body}"
    tree = Tree(REFERENCE, candidates)
    try:
        ended = expect(tree.kbench("verify", "--device", "cpu", "--json", "--timeout", str(arguments.hang), "--no-warm"), 1)
        found = tree.verdicts()
        passed = sum(not name.endswith("_plain") for name in candidates)
        told = ", ".join(f"{n} {what}" for what, n in sorted(found.items()))
        yield Row(name=f"{count} candidates, {passed} with a fault: without a verdict", figure=count - found.total(), unit="", most=0, note=told)
        wrong = abs(found["pass"] - (count - passed)) + sum(n for what, n in found.items() if what.startswith(("error", "skip")))
        yield Row(name="judged wrongly", figure=wrong, unit="", most=0)
        yield Row(name="their parent's memory", figure=ended.peak_mib, unit="MiB", most=300, note=f"{ended.seconds:.0f} s in all")
        yield Row(name="processes left behind", figure=len(left_behind(tree)), unit="", most=0)
    finally:
        tree.close()


def cuda(arguments: argparse.Namespace) -> Iterator[Row]:
    """CUDA candidates of one task on one GPU: one that has not changed, then many built ones, verified and timed."""
    if not GPU:
        print("CUDA candidates are not measured: no GPU here")
        return
    count, timed = arguments.cuda, arguments.timed or arguments.cuda
    tree = Tree(CUDA_REFERENCE, {f"c{i:03}": f"# {i}\n" + CUDA % {"blocks": 132 * (1 + i % arguments.builds)} for i in range(count)})
    try:
        before = gpu_memory_mib()
        first = expect(tree.kbench("verify", "t/c000", "--no-warm"), 0)
        yield Row(name="verify one CUDA candidate for the first time, with its build", figure=first.seconds)
        yield Row(name="verify it unchanged, cold", figure=expect(tree.kbench("verify", "t/c000"), 0).seconds)
        warm = [expect(tree.kbench("verify", "t/c000"), 0).seconds for _ in range(4)]
        yield Row(name="verify it unchanged, warm", figure=statistics.median(warm), most=3.0, note=_seconds(warm))
        yield from kernelbench(tree)
        start = statistics.median(warm)
        if arguments.builds > 1:
            built = expect(tree.kbench("verify", "--json"), 0)
            yield Row(name=f"{arguments.builds - 1} builds and {count} verdicts", figure=built.seconds)
        verified = expect(tree.kbench("verify", "--json"), 0)
        each = (verified.seconds - start) / (count - 1)
        yield Row(name=f"verify {count} built CUDA candidates, each", figure=each, most=0.8, note=_told(verified))
        for lanes in arguments.lanes:
            more = expect(tree.kbench("verify", "--json", "--jobs", str(lanes)), 0)
            yield Row(name=f"  with --jobs {lanes}", figure=(more.seconds - start) / (count - 1), note=_told(more))
        # By its own rule of precision a time may take its whole budget; a number of pairs is the same everywhere.
        start = expect(tree.kbench("time", "t/c000", "--repeat", "50"), 0).seconds
        found = expect(tree.kbench("time", *(f"t/c{i:03}" for i in range(timed)), "--json", "--repeat", "50"), 0)
        each = (found.seconds - start) / (timed - 1)
        yield Row(name=f"time {timed} built CUDA candidates, 50 pairs, each", figure=each, most=2.0, note=_told(found))
        yield Row(name="their parent's memory", figure=found.peak_mib, unit="MiB", most=300)
        yield Row(name="processes left behind", figure=len(left_behind(tree)), unit="", most=0)
        yield Row(name="GPU memory more than before", figure=gpu_memory_mib() - before, unit="MiB", most=0)
    finally:
        tree.close()


def report(arguments: argparse.Namespace) -> Iterator[Row]:
    """A report over very many rows."""
    count = arguments.rows
    tree = Tree(REFERENCE, {"plain": PLAIN})
    try:
        expect(tree.kbench("time", "--device", "cpu", "--repeat", "4", "--no-warm"), 0)
        for name in ("timings.csv", "verdicts.csv"):
            path = tree.root / "results" / name
            header, row = path.read_text().splitlines()[:2]
            path.write_text("\n".join([header, *(row.replace(",plain,", f",c{i % 1000:04},", 1) for i in range(count)), ""]))
        ended = [expect(tree.kbench("report", "--output", "report.md"), 0) for _ in range(3)]
        yield Row(name=f"report on {count} rows of times and of verdicts", figure=statistics.median(run.seconds for run in ended), most=2.0)
        yield Row(name="its memory", figure=max(run.peak_mib for run in ended), unit="MiB")
    finally:
        tree.close()


def builds(_arguments: argparse.Namespace) -> Iterator[Row]:
    """Builds of the project's candidates beside torch's own, see build.py."""
    import build

    start_cpu_s = asyncio.run(build.cpu_of_a_start())
    with tempfile.TemporaryDirectory() as folder:
        for index, path in enumerate(build.buildable()):
            plain = build.Plain(path, Path(folder) / f"plain{index}")
            found = build.measure(path, plain, Path(folder) / f"cache{index}", start_cpu_s)
            if isinstance(found, str):
                print(found, flush=True)
                continue
            yield Row(name=f"cold build of {found.label}, share of load_inline's time", figure=found.ratio, unit="", most=build.COLD_RATIO)
            yield Row(name=f"unchanged build of {found.label}, to the answer", figure=found.asked_s, most=build.UNCHANGED_S)


def expect(ended: Ended, code: int) -> Ended:
    """Stop where a command did not do what is measured."""
    if ended.code != code:
        raise SystemExit(f"a command ended with {ended.code} instead of {code}:\n{ended.out[-2000:]}\n{ended.err[-2000:]}")
    return ended


def left_behind(tree: Tree) -> list[int]:
    """Processes of this benchmark besides itself and the one that waits for the next command."""
    told = tree.kbench("warm").out
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid() and f"process {name} " not in told:
            try:
                ours = f"KBENCH_LOOP={TOKEN}".encode() in Path(f"/proc/{name}/environ").read_bytes()
            except OSError:
                continue
            found += [int(name)] if ours else []
    return found


def gpu_memory_mib() -> float:
    """What the first GPU has in use, once it no longer changes."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    readings: list[float] = []
    while len(readings) < 20 and len(set(readings[-3:])) != 1 or len(readings) < 3:
        readings.append(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
        time.sleep(0.1)
    return readings[-1]


def machine() -> str:
    """What this was measured on."""
    model = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    asked = run([sys.executable, "-c", "import torch; print(torch.__version__)"], folder=ROOT, environment=os.environ)
    gpu = ""
    if GPU:
        command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        gpu = "; " + subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip().replace("\n", "; ")
    return (
        f"{model}, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}; torch {asked.out.strip()}, Python {platform.python_version()}{gpu}"
    )


def _told(ended: Ended) -> str:
    """What the objects of a run say of their seconds."""
    objects = [json.loads(line) for line in ended.out.splitlines()]
    medians = [f"{name} {statistics.median(found[name] for found in objects):.3f}" for name in ("seconds", "build_s")]
    checks = Counter[str]()
    for found in objects:
        for check in found["checks"]:
            checks[check["name"]] += check["seconds"] / len(objects)
    slowest = [f"{name} {seconds:.3f}" for name, seconds in checks.most_common(3)]
    return f"{ended.seconds:.1f} s in all; medians {', '.join(medians)}; checks {', '.join(slowest)}"


def _seconds(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {
    "one": one,
    "many": many,
    "report": report,
    "cuda": cuda,
    "mixed": mixed,
    "builds": builds,
}


def main() -> None:
    """Measure every part asked for; exit with 1 where one falls short."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="these parts (default: all)")
    parser.add_argument("--cpu", type=int, default=200, help="plain candidates")
    parser.add_argument("--mixed", type=int, default=1000, help="candidates of which a fifth is faulty")
    parser.add_argument("--hang", type=float, default=4.0, help="seconds after which a candidate of those hangs")
    parser.add_argument("--timed", type=int, help="how many of the CUDA candidates are timed (default: all)")
    parser.add_argument("--builds", type=int, default=4, help="so many builds serve all CUDA candidates")
    parser.add_argument("--cuda", type=int, default=40, help="CUDA candidates")
    parser.add_argument("--rows", type=int, default=100_000, help="rows of results")
    parser.add_argument("--lanes", type=int, nargs="*", default=[], help="verify the CUDA candidates with these --jobs, too")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(machine(), flush=True)
    short = 0
    for name in arguments.only:
        for row in PARTS[name](arguments):
            print(row, flush=True)
            short += row.is_short
    print(f"{short} short" if short else "nothing falls short")
    sys.exit(bool(short))


if __name__ == "__main__":
    main()
