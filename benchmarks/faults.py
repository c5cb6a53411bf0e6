"""How soon is each fault named, and does the next candidate notice? Every file of tests/faults, an honest one after each.

    python benchmarks/faults.py [--cuda] [NAME…]

Prints for each fault its verdict, and `late_s`: the seconds to the verdict beyond what an honest candidate takes
and beyond the deadline, where there is one. An honest candidate follows each; one that is refused is shown.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
os.environ["KBENCH_WARM_S"] = "0"
os.environ["KBENCH_LEASE_DIR"] = tempfile.mkdtemp(prefix="leases-")

from kbench import discovery  # noqa: E402
from kbench.config import Config  # noqa: E402
from kbench.engines.job import Job, Options, builds  # noqa: E402
from kbench.engines.once import judge  # noqa: E402

# By its path: another package may be called `tests`, too.
_spec = importlib.util.spec_from_file_location("test_judged", ROOT / "tests/test_judged.py")
assert _spec is not None
assert _spec.loader is not None
judged = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(judged)

FAULTS = ROOT / "tests/faults"
TIMEOUT_S = 4.0
PATIENT_S = 120.0


def jobs(names: list[str], *, cuda: bool) -> list[Job]:
    made = []
    for path in sorted(FAULTS.glob("*.py")):
        expected = judged.expectation(path)
        if expected is None or path.stem.startswith("cuda_") != cuda or (names and path.stem not in names):
            continue
        is_slow = "timeout" in expected["reason"]
        made += [job(path, timeout_s=TIMEOUT_S if is_slow else PATIENT_S, cuda=cuda), job(FAULTS / "honest_plain.py", timeout_s=PATIENT_S, cuda=cuda)]
    return made


def job(path: Path, *, timeout_s: float, cuda: bool) -> Job:
    found = discovery.discover_pair(FAULTS / "reference.py", path)
    settings = Config(verify={"timeout_s": timeout_s}).settings_for("faults", {})
    return Job(task=found.tasks[0], candidate=found.candidates[0], device="cuda:0" if cuda else "cpu", settings=settings, cases=found.tasks[0].cases)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    chosen = jobs(asked.names, cuda=asked.cuda)
    with tempfile.TemporaryDirectory() as cache:
        options = Options(jobs=1, seed=7, cache=Path(cache), memory_bytes=(8 if asked.cuda else 1) * 2**30)
        results = judge(chosen, options, before=[judged.built_only(job) for job in chosen if builds(job)])
    honest = [result.verdict.seconds for result in results if result.job.candidate.name == "honest_plain"]
    usual_s = statistics.median(honest)
    wrong = 0
    print(f"{platform.node()}, {os.cpu_count()} cores; an honest candidate takes {usual_s:.2f} s (median of {len(honest)})")
    late = []
    for fault, after in zip(results[::2], results[1::2], strict=True):
        verdict = fault.verdict
        deadline_s = fault.job.settings.timeout_s if verdict.reason == "timeout" else 0.0
        late_s = verdict.seconds - verdict.build_s - usual_s - deadline_s
        late.append(late_s)
        expected = judged.expectation(fault.job.candidate.source)
        problem = "" if after.verdict.status == "pass" else f"  NEXT CANDIDATE: {after.verdict.status} {after.verdict.reason} {after.verdict.detail}"
        try:
            judged.check(verdict, dict(expected or {}))
        except AssertionError as error:
            problem += f"  UNEXPECTED: {error}"
        wrong += bool(problem)
        print(
            f"{fault.job.candidate.name:28} {verdict.status:5} {verdict.reason:22} late {late_s:6.2f} s  build {verdict.build_s:5.1f} s  "
            f"next {after.verdict.seconds:5.2f} s  {verdict.detail[:90]!r}{problem}"
        )
    print(f"late: median {statistics.median(late):.2f} s, most {max(late):.2f} s; {wrong} of {len(late)} not as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
