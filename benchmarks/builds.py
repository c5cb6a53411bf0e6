"""How long does an engineer wait for a build? Torch's own `load_inline` and kbench's, in turn, on this machine.

    python benchmarks/builds.py [CANDIDATE...]

Every figure comes from a process of its own that imports one candidate file; torch's import is not in it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = ("candidate", "plain s", "cold s", "ratio", "edited s", "unchanged s", "headers")
# A comment that changes a source and nothing else.
EDIT = "\n// edited\n"


def main() -> None:
    """Measure each candidate and print a row as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("candidates", nargs="*", type=Path, help="candidate files; none: all of the project's that build something")
    parser.add_argument("--one", choices=("plain", "kbench"), help=argparse.SUPPRESS)
    parser.add_argument("--cache", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        (candidate,) = arguments.candidates
        print(json.dumps(plain(candidate) if arguments.one == "plain" else kbench(candidate, arguments.cache)))
        return
    print_row(COLUMNS)
    for candidate in arguments.candidates or candidates():
        print_row(row(candidate))


def candidates() -> list[Path]:
    """The project's candidates that build something."""
    return [path for path in sorted(ROOT.glob("candidates/*/*.py")) if "load_inline(" in path.read_text()]


def row(candidate: Path) -> tuple[str, ...]:
    """Build a candidate in torch's way, then in kbench's: with an empty cache, after an edit, and unchanged."""
    label = f"{candidate.parent.name}/{candidate.stem}"
    with tempfile.TemporaryDirectory(prefix="kbench-loop-") as folder:
        edited = Path(folder) / candidate.name
        edited.write_text(re.sub(r'(_SOURCE = r?""")', lambda found: found[1] + EDIT, candidate.read_text()))
        slow = measure("plain", candidate, Path(folder) / "torch")
        cache = Path(folder) / "cache"
        cold, after_edit, unchanged = (measure("kbench", file, cache) for file in (candidate, edited, candidate))
    if "error" in slow or "error" in cold:
        return label, str(slow.get("error") or cold.get("error"))
    ratio = f"{cold['seconds'] / slow['seconds']:.2f}"
    seconds = [f"{found['seconds']:.3f}" for found in (after_edit, unchanged)]
    return label, f"{slow['seconds']:.1f}", f"{cold['seconds']:.1f}", ratio, *seconds, str(cold["headers"])


def measure(way: str, candidate: Path, cache: Path) -> dict[str, float | str]:
    """Import a candidate in a new process; what it said of itself."""
    command = [sys.executable, __file__, "--one", way, "--cache", str(cache), str(candidate)]
    environment = {**os.environ, "TORCH_EXTENSIONS_DIR": str(cache), "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    lines = ended.stdout.strip().splitlines()
    if ended.returncode or not lines:
        return {"error": (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1][:120]}
    return dict(json.loads(lines[-1]))


def plain(candidate: Path) -> dict[str, float | str]:
    """Import it with torch's own functions, for the same architecture and with the same CUDA."""
    from torch.utils import cpp_extension

    from kbench.worker.build import toolchain

    tools = toolchain.current()
    cpp_extension.CUDA_HOME = str(tools.cuda_home) if tools.cuda_home else None
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", tools.architectures)
    return {"seconds": seconds_to_import(candidate)}


def kbench(candidate: Path, cache_folder: Path) -> dict[str, float | str]:
    """Import it as a candidate's process does, with the builder in this process."""
    from kbench.worker.build import intercept, make, toolchain
    from kbench.worker.build.cache import Cache
    from kbench.worker.build.request import BuildRequest, BuildResult

    cache = Cache(cache_folder)
    used: list[str] = []

    def service(request: BuildRequest) -> BuildResult:
        result = make.build(request, cache, jobs=len(os.sched_getaffinity(0)))
        used.append(result.headers)
        return result

    toolchain.current()
    intercept.install(service, cache)
    return {"seconds": seconds_to_import(candidate), "headers": "+".join(used) or "cached"}


def seconds_to_import(path: Path) -> float:
    """Run a candidate file once, as a module of its own."""
    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    started = time.perf_counter()
    spec.loader.exec_module(module)
    return time.perf_counter() - started


def print_row(cells: tuple[str, ...]) -> None:
    """One line of the table, at once."""
    print(f"{cells[0]:30}", *(f"{cell:>12}" for cell in cells[1:]), flush=True)


if __name__ == "__main__":
    main()
