"""What do the checks beyond the plain comparison cost a candidate?

    python benchmarks/verify_cost.py [--device cpu|cuda] [SELECTOR…]

Each candidate of the tree is verified three times in one run. Of the last time, when what it builds lies in the cache and
the reference has run, `full` is the whole of it, from the start of the candidate's process to its end; `bare` is that
less what was spent on repetitions, variants and errors against float64: a load, a construction and five trials that
are compared. Exits 1 where full takes more than twice as long as bare.
"""

from __future__ import annotations

import argparse
import os
import platform
import secrets
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ["KBENCH_WARM_S"] = "0"

from kbench import discovery  # noqa: E402
from kbench.config import TaskSettings  # noqa: E402
from kbench.engines.job import Job, Options  # noqa: E402
from kbench.engines.once import judge  # noqa: E402
from kbench.records import Status, Verdict  # noqa: E402

ROUNDS = 3
MOST = 2.0
# Checks that a plain comparison has not.
BEYOND = ("determinism", "variants", "precision")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("selectors", nargs="*")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    given = parser.parse_args()
    found = discovery.discover(ROOT)
    tasks = {task.name: task for task in found.tasks}
    wanted = [
        candidate
        for candidate in found.candidates
        if given.device in candidate.devices and (not given.selectors or any(candidate.label.startswith(selector) for selector in given.selectors))
    ]
    device = "cuda:0" if given.device == "cuda" else "cpu"
    jobs = [
        Job(
            task=tasks[candidate.task],
            candidate=replace(candidate, name=f"{candidate.name}#{number}"),
            device=device,
            settings=TaskSettings(),
            cases=tasks[candidate.task].cases[:1],
        )
        for candidate in wanted
        for number in range(ROUNDS)
    ]
    seen: dict[str, Verdict] = {}
    with tempfile.TemporaryDirectory() as cache:
        for result in judge(jobs, Options(jobs=1, seed=secrets.randbits(60), cache=Path(cache))):
            # The last round stays: its candidate was built before.
            seen[result.job.candidate.label.rpartition("#")[0]] = result.verdict
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; seconds of the first case")
    print(f"{'candidate':32} {'full':>8} {'bare':>8} {'ratio':>6}  {'repetitions':>11} {'variants':>9} {'float64':>8}")
    worst = 0.0
    for label, last in seen.items():
        if last.status is not Status.PASS:
            print(f"{label:32} {last.status}: {last.reason} {last.detail[:80]}")
            continue
        parts = [sum(check.seconds for check in last.checks if check.name == name) for name in BEYOND]
        full, bare = last.seconds, last.seconds - sum(parts)
        worst = max(worst, full / bare)
        print(f"{label:32} {full:8.3f} {bare:8.3f} {full / bare:6.2f}  {parts[0]:11.3f} {parts[1]:9.3f} {parts[2]:8.3f}")
    print(f"at most {worst:.2f} times the bare comparison; {MOST:g} is the most")
    return 0 if 0.0 < worst <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
