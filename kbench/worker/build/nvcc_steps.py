"""Run nvcc's own steps for one source, the host's half beside the device's half.

A program of its own, standard library only: `python nvcc_steps.py DEPENDENCIES NVCC ARGUMENT...`. nvcc
says what it would run (`--dryrun`) and would run that in a row, though the two halves meet only at the
end. Where its steps are not the ones known here, for two architectures say, nvcc itself runs.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

_STEPS = ("preprocess", "cudafe++", "preprocess for the device", "cicc", "ptxas", "fatbinary", "compile")
_SETTING = re.compile(r"([A-Z_]+)=(.*)")
_MODULE = "--module_id_file_name"
_SOURCE = "--orig_src_file_name"
_MAKE_MODULE = "--gen_module_id_file"


@dataclass
class Plan:
    """nvcc's steps by name, and the environment that they run in."""

    commands: dict[str, list[str]] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


def main(arguments: Sequence[str]) -> int:
    """Compile; the exit status is that of the first step that failed."""
    dependencies, *nvcc = arguments
    said = subprocess.run([*nvcc, "--dryrun"], capture_output=True, text=True, check=False)
    plan = parse(said.stderr) if said.returncode == 0 else None
    if plan is None:
        return subprocess.run(nvcc, check=False).returncode
    plan.commands["preprocess"] += ["-MMD", "-MF", dependencies]
    _give_module_name(plan)
    with ThreadPoolExecutor(2) as pool:
        host = pool.submit(_run, plan, _STEPS[:2])
        device = pool.submit(_run, plan, _STEPS[2:6])
    return host.result() or device.result() or _run(plan, _STEPS[6:])


def parse(text: str) -> Plan | None:
    """Read what `nvcc --dryrun` printed; None unless it is the known steps, each once."""
    plan = Plan()
    for line in text.splitlines():
        said = line.removeprefix("#$ ")
        if setting := _SETTING.fullmatch(said):
            plan.environment[setting[1]] = setting[2].strip()
            continue
        command = shlex.split(said.replace("$CICC_PATH", plan.environment.get("CICC_PATH", "")))
        name = _name(command)
        if name in plan.commands or (name and not line.startswith("#$ ")):
            return None
        if name:
            plan.commands[name] = command
    is_known = set(plan.commands) == set(_STEPS) and {_MODULE, _MAKE_MODULE, _SOURCE} <= set(plan.commands["cudafe++"])
    return plan if is_known else None


def _name(command: Sequence[str]) -> str:
    program = os.path.basename(command[0]) if command else ""
    if program in _STEPS:
        return program
    if "-E" in command:
        return "preprocess for the device" if any(word.startswith("-D__CUDA_ARCH__=") for word in command) else "preprocess"
    return "compile" if "-c" in command else ""


def _give_module_name(plan: Plan) -> None:
    """Choose the name that both halves give to what is local to the source; cudafe++ would, and cicc would wait for it."""
    command = plan.commands["cudafe++"]
    command.remove(_MAKE_MODULE)
    source = Path(command[command.index(_SOURCE) + 1])
    digest = hashlib.sha256(" ".join(plan.commands["preprocess"]).encode() + source.read_bytes()).hexdigest()
    name = re.sub(r"\W", "_", source.name, flags=re.ASCII)
    Path(command[command.index(_MODULE) + 1]).write_text(f"_{digest[:8]}_{len(name)}_{name}_{digest[8:16]}")


def _run(plan: Plan, names: Sequence[str]) -> int:
    for name in names:
        ended = subprocess.run(
            plan.commands[name],
            env={**os.environ, **plan.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        os.write(1, ended.stdout)
        if ended.returncode:
            return ended.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
