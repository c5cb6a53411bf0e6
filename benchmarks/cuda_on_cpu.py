"""How long CUDA candidates take without a GPU: a cold build, and the default case in 5 trials.

Usage: python benchmarks/cuda_on_cpu.py [TASK/NAME ...]

Prints for each candidate what it came to, the seconds of its build and of all calls in the default case, and the CPU
seconds of everything. The figures mean something on a machine that does nothing else.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CANDIDATES = ("mixture_reparam/document", "cvae/document", "mixture_reparam/single_launch", "cvae/fused")


def main(candidates: tuple[str, ...]) -> None:
    """Verify one after the other, each with a cache of its own."""
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}")
    for candidate in candidates:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with tempfile.TemporaryDirectory() as cache:
            run = subprocess.run(
                [sys.executable, "-m", "kbench", "verify", candidate, "--device", "cpu", "--case", "default", "--trials", "5", "--json"],
                cwd=ROOT,
                env={**os.environ, "KBENCH_CACHE_DIR": cache, "PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
                text=True,
                check=False,
            )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        for line in run.stdout.splitlines():
            found = json.loads(line)
            cases_s = sum(case["seconds"] for case in found["cases"])
            print(f"{candidate:<32}{found['status']:<6}build {found['build_s']:6.1f} s   default {cases_s:6.1f} s   CPU {cpu_s:6.1f} s", flush=True)


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or CANDIDATES)
