"""The process that becomes compute-sanitizer, around a fresh interpreter that holds one candidate.

The tool reads its findings from a library of its own inside the candidate's process, over a socket that it opens
itself and two pipes in the scratch folder. So the tool runs as kbench does, and what it starts confines itself
before anything of the candidate's is there: `sanitized.enter`, which then becomes the process that loads the
candidate. The report goes to a folder that this process cannot reach.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kbench.worker import sanitized

_PACKAGE = str(Path(__file__).resolve().parents[1])

_COMMON = (
    "--xml",
    "--num-callers-host",
    "12",
    "--print-limit",
    "100",
    "--strip-paths",
    "no",
    # Calls that fail are the candidate's to handle, and an exit code says nothing of a kernel.
    "--check-exit-code",
    "no",
    "--launch-timeout",
    "120",
)
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    # Without padding, one past the end of an allocation is the next one; after a fault the other kernels still run.
    "memcheck": ("--report-api-errors", "no", "--padding", "64", "--destroy-on-device-error", "kernel"),
    "racecheck": ("--racecheck-report", "analysis"),
    "initcheck": ("--check-api-memory-access", "no"),
    "synccheck": (),
}


def main(args: Mapping[str, Any], fds: list[int]) -> None:
    """Write down what is asked, and become the tool."""
    del fds
    scratch = Path(args["scratch"])
    request = scratch / "request.json"
    policy = {**args["policy"], "readable": [*args["policy"]["readable"], *_packages()]}
    request.write_text(json.dumps({**args["request"], "policy": policy, "package": _PACKAGE}))
    command = [args["tool"], "--tool", args["which"], "--save", args["report"], *_COMMON, *_OPTIONS[args["which"]]]
    target = [sys.executable, "-P", "-c", sanitized.program("enter"), _PACKAGE, str(request)]
    os.execve(args["tool"], [*command, *target], _environment(args["gpu"], scratch))  # noqa: S606 - the user's own toolkit


def _packages() -> list[str]:
    """Where torch and Triton lie; the confined interpreter has not imported them when it is to name what it reads."""
    return [path for name in ("torch", "triton") for path in getattr(sys.modules.get(name), "__path__", ())]


def _environment(gpu: str, scratch: Path) -> dict[str, str]:
    """An allocation for every tensor: in a block of a caching allocator a neighbour's bytes are no fault."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTORCH_CUDA_ALLOC")}
    return {**environment, "CUDA_VISIBLE_DEVICES": gpu, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "TMPDIR": str(scratch)}
