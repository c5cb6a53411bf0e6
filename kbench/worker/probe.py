"""What this machine is, in a process of its own: asking a GPU for its name makes a context."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from kbench.protocol import Channel
from kbench.worker import confine
from kbench.worker.timing.monitor import utilisation


def main(args: Mapping[str, Any], fds: list[int]) -> None:
    """Answer once; `sandbox` is what a candidate's process would be held by, tried on a fork of this one."""
    # Before anything asks for a GPU: its driver may run threads, and a process of threads is not confined.
    if args["visible"] is None:
        del os.environ["CUDA_VISIBLE_DEVICES"]
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = args["visible"]
    sandbox = _sandbox(Path(args["scratch"]))
    Channel(socket.socket(fileno=fds[0])).send({**facts(), "sandbox": sandbox})


def facts() -> dict[str, Any]:
    """The facts that results depend on; `gpus` has one entry for each device, in CUDA's order."""
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "",
        "python": platform.python_version(),
        "host": platform.node(),
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "driver": _driver(),
        "gpus": _gpus(),
    }


def _sandbox(scratch: Path) -> str:
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write_fd, str(confine.confine(confine.Policy(scratch=scratch))).encode())
        os._exit(0)
    os.close(write_fd)
    os.waitpid(pid, 0)
    with os.fdopen(read_fd) as told:
        return told.read() or "unsandboxed (the sandbox could not be set up)"


def _gpus() -> list[dict[str, Any]]:
    if torch.version.cuda is None or not torch.cuda.is_available():
        return []
    found = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        found.append(
            {
                "name": properties.name,
                "uuid": str(getattr(properties, "uuid", index)),
                "memory_bytes": properties.total_memory,
                "capability": f"{properties.major}.{properties.minor}",
                # Before anything of ours runs there.
                "utilisation": utilisation(str(getattr(properties, "uuid", ""))),
            }
        )
    return found


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _driver() -> str:
    try:
        first = Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
    except (OSError, IndexError):
        return ""
    words = first.split()
    return next((word for word in words if word[:1].isdigit() and "." in word), "")
