"""How long does a candidate wait for its extensions? Torch's own `load_inline` against kbench, in turn, on this machine.

    python benchmarks/build.py [--side-by-side] [CANDIDATE.py…]

Without names: every candidate of the project that builds something here. `plain` is the import of the file in a new
process with torch's own functions, for the same architecture; `cold` is the build step of `kbench verify` with an
empty cache, from the start of the candidate's process to its end; `unchanged` the same again, of which `asked` is from
the request to the answer. CPU seconds are those of all processes of a build, which a busy machine changes least.
With `--side-by-side` all plain builds run while kbench's are measured one after another: for a machine of many cores.
Exits 1 where a document candidate takes more than 0.35 of plain's time, or an unchanged one waits 0.05 s.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ["KBENCH_WARM_S"] = "0"

from kbench import discovery  # noqa: E402
from kbench.config import Config  # noqa: E402
from kbench.engines.job import Events, Job, Options  # noqa: E402
from kbench.engines.local import LocalEngine  # noqa: E402
from kbench.protocol import Message  # noqa: E402

COLD_RATIO = 0.35
UNCHANGED_S = 0.05
TIMEOUT_S = 900.0
COLUMNS = ("candidate", "plain s", "cold s", "ratio", "plain CPU", "cold CPU", "ratio", "unchanged s", "asked s", "headers")


def main() -> int:
    """Measure each candidate and print a row as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("candidates", nargs="*", type=Path)
    parser.add_argument("--side-by-side", action="store_true", help="run the plain builds beside kbench's")
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.plain:
        (candidate,) = arguments.candidates
        print(json.dumps({"seconds": seconds_to_import(candidate), "cpu_s": cpu_s()}))
        return 0
    files = arguments.candidates or buildable()
    print(f"{platform.node()}, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}; {versions()}", flush=True)
    start_cpu_s = asyncio.run(cpu_of_a_start())
    print_row(COLUMNS)
    broken = []
    with tempfile.TemporaryDirectory(prefix="kbench-build-") as folder:
        plain = {path: Plain(path.resolve(), Path(folder) / str(index)) for index, path in enumerate(files)}
        if arguments.side_by_side:
            for process in plain.values():
                process.start()
        for path in files:
            found = measure(path.resolve(), plain[path], Path(folder) / "cache" / path.parent.name / path.stem, start_cpu_s)
            print_row((found,) if isinstance(found, str) else found.cells())
            broken += [found] if isinstance(found, str) else found.broken()
    for line in broken:
        print(f"over the demand: {line}")
    return 1 if broken else 0


@dataclass(frozen=True)
class Measured:
    """One candidate's builds; times in seconds, `asked_s` from an unchanged build's request to its answer."""

    label: str
    headers: str
    plain_s: float
    plain_cpu_s: float
    cold_s: float
    cold_cpu_s: float
    unchanged_s: float
    asked_s: float

    @property
    def ratio(self) -> float:
        """The cold build's share of torch's own time."""
        return self.cold_s / self.plain_s

    def cells(self) -> tuple[str, ...]:
        """Its row of the table, as in COLUMNS."""
        times = (f"{self.plain_s:.1f}", f"{self.cold_s:.1f}", f"{self.ratio:.2f}")
        cpu = (f"{self.plain_cpu_s:.1f}", f"{self.cold_cpu_s:.1f}", f"{self.cold_cpu_s / self.plain_cpu_s:.2f}")
        return (self.label, *times, *cpu, f"{self.unchanged_s:.3f}", f"{self.asked_s:.3f}", self.headers)

    def broken(self) -> list[str]:
        """The demands that it does not meet."""
        found = []
        if self.label.endswith("/document") and self.ratio > COLD_RATIO:
            found.append(f"{self.label}: cold build at {self.ratio:.2f} of plain, at most {COLD_RATIO}")
        if self.asked_s > UNCHANGED_S:
            found.append(f"{self.label}: unchanged build answered in {self.asked_s:.3f} s, at most {UNCHANGED_S}")
        return found


def buildable() -> list[Path]:
    """The project's candidates that build something."""
    return [path for path in sorted(ROOT.glob("candidates/*/*.py")) if "load_inline(" in path.read_text()]


def measure(path: Path, plain: Plain, cache: Path, start_cpu_s: float) -> Measured | str:
    """Build one candidate in torch's way and twice in kbench's; or what went wrong."""
    label = f"{path.parent.name}/{path.stem}"
    before_s = cpu_s()
    cold, again = asyncio.run(build_twice(path, cache))
    cold_cpu_s = cpu_s() - before_s - start_cpu_s
    if not (cold.get("ok") and again.get("ok")):
        return f"{label}: not built by kbench: {(again if cold.get('ok') else cold).get('message', 'it ended')}"
    told = plain.result()
    if isinstance(told, str):
        return f"{label}: no plain build to compare with: {told}"
    return Measured(
        label=label,
        headers="+".join(build.headers for build in cold["records"]),
        plain_s=told["seconds"],
        plain_cpu_s=told["cpu_s"],
        cold_s=cold["build_s"],
        cold_cpu_s=cold_cpu_s,
        unchanged_s=again["build_s"],
        asked_s=sum(build.wait_s for build in again["records"]),
    )


class Plain:
    """The import of a candidate in a process of its own with torch's functions; torch's import is not in its seconds."""

    def __init__(self, path: Path, folder: Path) -> None:
        self._path = path
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Begin; without this, `result` does."""
        self._folder.mkdir()
        environment = {**os.environ, "TORCH_EXTENSIONS_DIR": str(self._folder)}
        environment.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")
        environment.setdefault("CUDA_HOME", "/usr/local/cuda")
        command = [sys.executable, __file__, "--plain", str(self._path)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)

    def result(self) -> dict[str, float] | str:
        """Wait for `seconds` and `cpu_s`, or for what went wrong."""
        if self._process is None:
            self.start()
        assert self._process is not None
        output, errors = self._process.communicate()
        lines = output.strip().splitlines()
        if self._process.returncode or not lines:
            return (errors.strip().splitlines() or [f"exit code {self._process.returncode}"])[-1][:120]
        return dict(json.loads(lines[-1]))


def seconds_to_import(path: Path) -> float:
    """Run a candidate file once, as a module of its own."""
    import torch.utils.cpp_extension  # noqa: F401, PLC0415 - before the clock runs

    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    started = time.perf_counter()
    spec.loader.exec_module(module)
    return time.perf_counter() - started


async def build_twice(path: Path, cache: Path) -> tuple[Message, Message]:
    """The build step of `kbench verify` with an empty cache, and with what the first left."""
    found = discovery.discover_pair(ROOT / "references" / f"{path.parent.name}.py", path)
    settings = Config(verify={"timeout_s": TIMEOUT_S}).settings_for("build", {})
    device = "cpu" if found.candidates[0].language == "cpp" else "cuda:0"
    job = Job(task=found.tasks[0], candidate=found.candidates[0], device=device, settings=settings, cases=found.tasks[0].cases)
    engine = LocalEngine(Options(jobs=1, seed=1, cache=cache), Events())
    try:
        await engine.start()
        return await engine.builds.built(job), await engine.builds.built(job)
    finally:
        await engine.close()


async def cpu_of_a_start() -> float:
    """The CPU seconds of an engine that does nothing."""
    before_s = cpu_s()
    engine = LocalEngine(Options(jobs=1, seed=1, cache=Path(tempfile.gettempdir()) / "none"), Events())
    await engine.start()
    await engine.close()
    return cpu_s() - before_s


def cpu_s() -> float:
    """The CPU seconds of all processes that ended below this one."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def versions() -> str:
    """What was compiled with."""
    question = "import torch; print(torch.__version__, *([torch.cuda.get_device_name()] if torch.cuda.is_available() else []))"
    said = subprocess.run([sys.executable, "-c", question], capture_output=True, text=True, check=False).stdout.strip()
    nvcc = shutil.which("nvcc", path="/usr/local/cuda/bin:" + os.environ.get("PATH", ""))
    lines = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False).stdout.splitlines() if nvcc else []
    return f"torch {said}, {lines[-2].strip() if len(lines) > 1 else 'no nvcc'}"


def print_row(cells: tuple[str, ...]) -> None:
    """One line of the table, at once."""
    print(f"{cells[0]:30}", *(f"{cell:>11}" for cell in cells[1:]), flush=True)


if __name__ == "__main__":
    sys.exit(main())
