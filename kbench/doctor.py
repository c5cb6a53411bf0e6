"""What can this machine do, and what mends what it cannot? Torch is asked in a process of its own."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from kbench import discovery, warm
from kbench.config import cache_folder, cache_limit_bytes, warm_seconds
from kbench.engines import sanitize
from kbench.errors import KbenchError
from kbench.outcome import EXIT_ERROR, EXIT_PASS

# Importing torch and asking CUDA for its devices; a cold disk takes a minute.
_TORCH_TIMEOUT_S = 180
_TORCH_QUESTION = """
import json, torch
from kbench.worker.landlock import abi
print(json.dumps({
    "torch": torch.__version__, "cuda": torch.version.cuda,
    "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if torch.version.cuda else [],
    "landlock": abi(),
}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line: `state` is `ok`, `missing` (needed for work on a CPU) or `limited`; `mend` is the exact step."""

    name: str
    state: str
    detail: str
    mend: str = ""


def main(root: Path | None, *, as_json: bool) -> int:
    """Print what was found; the exit code."""
    findings = list(examine(root))
    if as_json:
        print(json.dumps({"schema": 1, "findings": [asdict(finding) for finding in findings]}))  # noqa: T201
    else:
        for finding in findings:
            print(f"{finding.state:8} {finding.name:12} {finding.detail}")  # noqa: T201
            if finding.mend:
                print(f"{'':8} {'':12} → {finding.mend}")  # noqa: T201
    return EXIT_ERROR if any(finding.state == "missing" for finding in findings) else EXIT_PASS


def examine(root: Path | None) -> Iterable[Finding]:
    """Look at everything in turn."""
    yield _python()
    facts, torch_finding = _ask_torch()
    yield torch_finding
    yield _gpu(facts)
    yield from _compilers(facts)
    yield _module("triton", "Triton candidates", "pip install triton")
    yield _module("pynvml", "clocks and throttling in the record", "pip install nvidia-ml-py")
    yield _sanitizer()
    yield _sandbox(facts)
    yield _cache()
    yield Finding(name="warm", state="ok", detail=describe_warm())
    yield _results(root)


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= (3, 11):  # noqa: UP036 - that is the question
        return Finding(name="python", state="ok", detail=f"{version} at {sys.executable}")
    return Finding(name="python", state="missing", detail=version, mend="install Python 3.11 or later")


def _ask_torch() -> tuple[dict[str, object], Finding]:
    if importlib.util.find_spec("torch") is None:
        return {}, Finding(name="torch", state="missing", detail="not installed", mend="pip install torch")
    try:
        asked = subprocess.run([sys.executable, "-c", _TORCH_QUESTION], capture_output=True, text=True, timeout=_TORCH_TIMEOUT_S, check=False)
        facts = json.loads(asked.stdout.strip().splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        words = asked.stderr.strip().splitlines() if "asked" in locals() else [str(error)]
        detail = f"cannot be imported: {words[-1] if words else error}"
        return {}, Finding(name="torch", state="missing", detail=detail, mend="pip install --force-reinstall torch")
    build = f"CUDA {facts['cuda']}" if facts["cuda"] else "CPU build"
    return facts, Finding(name="torch", state="ok", detail=f"{facts['torch']}, {build}")


def _gpu(facts: dict[str, object]) -> Finding:
    gpus = facts.get("gpus")
    if isinstance(gpus, list) and gpus:
        return Finding(name="gpu", state="ok", detail=", ".join(map(str, gpus)))
    without = "CUDA C++ candidates are verified on the CPU, and never timed"
    if not discovery.has_cuda_parser():
        without = "CUDA C++ candidates are skipped (`pip install tree-sitter tree-sitter-cuda` to verify them on the CPU)"
    if facts.get("cuda"):
        return Finding(name="gpu", state="limited", detail=f"torch finds none: {without}", mend="check `nvidia-smi`")
    return Finding(name="gpu", state="limited", detail=f"this torch is a CPU build: {without}", mend="pip install torch (a CUDA build)")


def _compilers(facts: dict[str, object]) -> Iterable[Finding]:
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler:
        yield Finding(name="c++", state="ok", detail=compiler)
    else:
        yield Finding(name="c++", state="missing", detail="no compiler for C++ candidates", mend="apt-get install g++")
    yield _cuda_home(needed=bool(facts.get("cuda")))
    ninja = shutil.which("ninja")
    detail = ninja or "not there; kbench builds without it, torch.compile on some versions does not"
    yield Finding(name="ninja", state="ok" if ninja else "limited", detail=detail, mend="" if ninja else "pip install ninja")


def _cuda_home(*, needed: bool) -> Finding:
    """Find the toolkit: a CUDA_HOME whose folder lacks nvcc, headers or libraries builds nothing."""
    named = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    right = next((folder for folder in _toolkits() if _is_toolkit(folder)), None)
    if named and not _is_toolkit(Path(named)):
        lacks = ", ".join(name for name in ("bin/nvcc", "include/cuda_runtime.h") if not (Path(named) / name).exists())
        mend = f"export CUDA_HOME={right}" if right else "install the CUDA toolkit and set CUDA_HOME to it"
        return Finding(name="nvcc", state="limited", detail=f"CUDA_HOME={named} lacks {lacks}", mend=mend)
    if right is None:
        mend = "install the CUDA toolkit of torch's CUDA version and set CUDA_HOME to it" if needed else ""
        return Finding(name="nvcc", state="limited", detail="no CUDA toolkit: CUDA candidates cannot be built", mend=mend)
    on_path = shutil.which("nvcc")
    guessed = Path(on_path).parent.parent if on_path else None
    mend = ""
    if not named and guessed is not None and not _is_toolkit(guessed):
        mend = f"export CUDA_HOME={right}  (torch guesses {guessed}, which is wrong; kbench finds the right one itself)"
    return Finding(name="nvcc", state="ok", detail=f"{right / 'bin/nvcc'}", mend=mend)


def _toolkits() -> Iterable[Path]:
    for name in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")):
        if name:
            yield Path(name)
    if nvcc := shutil.which("nvcc"):
        yield Path(os.path.realpath(nvcc)).parent.parent
    yield Path("/usr/local/cuda")


def _is_toolkit(folder: Path) -> bool:
    return (folder / "bin/nvcc").is_file() and (folder / "include/cuda_runtime.h").is_file()


def _module(name: str, use: str, mend: str) -> Finding:
    if importlib.util.find_spec(name) is not None:
        return Finding(name=name, state="ok", detail="installed")
    return Finding(name=name, state="limited", detail=f"not installed: {use}", mend=mend)


def _sanitizer() -> Finding:
    if tool := sanitize.find_tool():
        return Finding(name="sanitizer", state="ok", detail=tool)
    return Finding(
        name="sanitizer",
        state="limited",
        detail="no compute-sanitizer: `kbench verify --sanitize` skips",
        mend="install the CUDA toolkit's compute-sanitizer, and put its folder on PATH or set CUDA_HOME",
    )


def _sandbox(facts: dict[str, object]) -> Finding:
    version = facts.get("landlock")
    number = version[0] if isinstance(version, list) and version else 0
    if isinstance(number, int) and number >= 2:  # noqa: PLR2004 - below, files cannot be moved between folders
        return Finding(name="sandbox", state="ok", detail=f"Landlock {number}")
    return Finding(name="sandbox", state="limited", detail="no Landlock: candidates run unsandboxed", mend="a kernel of 5.19 or later with Landlock on")


def describe_cache() -> str:
    """One line on the build cache; `KBENCH_CACHE_GB` bounds it."""
    markers = list((cache_folder() / "builds").glob("*/entry.json"))
    n_bytes = 0
    for marker in markers:
        # Another process may be throwing this one out.
        with contextlib.suppress(OSError):
            n_bytes += sum(file.stat().st_size for file in marker.parent.iterdir())
    return f"{cache_folder() / 'builds'}: {len(markers)} builds, {n_bytes / 1e6:.0f} MB of at most {cache_limit_bytes() / 1e9:g} GB"


def clear_cache() -> str:
    """Remove every build; builds under way finish undisturbed."""
    before = describe_cache()
    folder = cache_folder() / "builds"
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name not in ("locks", "work"):
            shutil.rmtree(path, ignore_errors=True)
    return f"emptied {before}"


def describe_warm() -> str:
    """One line on the process that a command left behind."""
    found = warm.status()
    if found is None:
        kept_s = warm_seconds()
        return "no process waits for the next command; " + (f"one will for {kept_s:g} s" if kept_s else "`KBENCH_WARM_S=600` keeps one")
    at_work = f"at work for {found['commands']}" if found["commands"] else f"idle for {found['idle_s']:.0f} s of {found['ends_after_s']:g}"
    return f"process {found['pid']} waits for the next command, {at_work}; `kbench warm --end` ends it"


def end_warm() -> str:
    """End that process; commands at work go on."""
    found = warm.end()
    return "no process waits" if found is None else f"ended process {found['pid']}"


def _cache() -> Finding:
    folder = cache_folder()
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    if os.access(nearest, os.W_OK):
        return Finding(name="cache", state="ok", detail=describe_cache())
    return Finding(name="cache", state="missing", detail=f"{folder} cannot be written", mend="export KBENCH_CACHE_DIR=DIR to a folder you can write")


def _results(root: Path | None) -> Finding:
    try:
        folder = (root or discovery.find_root(Path.cwd())) / "results"
    except KbenchError as error:
        return Finding(name="results", state="limited", detail=error.message, mend=error.hint)
    nearest = folder if folder.exists() else folder.parent
    if os.access(nearest, os.W_OK):
        return Finding(name="results", state="ok", detail=str(folder))
    return Finding(name="results", state="missing", detail=f"{folder} cannot be written", mend=f"chmod u+w {folder}")
