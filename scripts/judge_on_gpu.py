"""The corpus on a GPU machine, round after round with fresh seeds: python3 scripts/judge_on_gpu.py FOLDER ROUNDS [cuda|cpu|all] [SECONDS].

Prints every outcome; of what is not right, and of what was timed on a GPU, also what the judge's clock saw.
"""

from __future__ import annotations

import json
import secrets
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from kbench.selftest import runner  # noqa: E402
from kbench.selftest.expectations import Entry  # noqa: E402

folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
kind = sys.argv[3] if len(sys.argv) > 3 else "cuda"  # noqa: PLR2004
limit_s = float(sys.argv[4]) if len(sys.argv) > 4 else 200.0  # noqa: PLR2004
began = time.monotonic()


def wanted(entry: Entry) -> bool:
    return kind == "all" or (kind in entry.expectation.devices and (kind != "cpu" or entry.expectation.devices == ("cpu",)))


def tell(outcome: runner.Outcome) -> None:
    spent_s = time.monotonic() - began
    print(f"{spent_s:6.1f} {outcome.assessment:12} {outcome.device:7} {outcome.entry.candidate.label}: {outcome.found}", flush=True)
    if outcome.result is None:
        return
    verdict = outcome.result.verdict
    if verdict.status != outcome.entry.expectation.status or "cuda" in outcome.device:
        print(f"       {verdict.detail[:300]} | {'; '.join(verdict.warnings)[:300]} | {verdict.seconds:.1f} s", flush=True)
    if outcome.assessment in ("missed", "false alarm"):
        print(f"       {verdict.output_tail[-600:]}", flush=True)
    for timing in outcome.result.timings if "cuda" in outcome.device else ():
        seen = {name: timing.samples.get(name) for name in ("burst_overhead_s", "candidate_burst_s")}
        micro = {name: [round(s * 1e6, 1) for s in values or []] for name, values in seen.items()}  # type: ignore[union-attr, attr-defined]
        queued, calls = timing.samples.get("candidate_burst_queued"), timing.extra.get("burst_calls")
        print(f"       {timing.reference_s * 1e6:.2f} -> {timing.candidate_s * 1e6:.2f} us {timing.flags} x{calls} {micro} {queued}", flush=True)
        walls = [[round(s * 1e6) for s in timing.samples.get(f"{side}_wall_excess_s") or []] for side in ("reference", "candidate")]  # type: ignore[attr-defined]
        print(f"       wall {timing.reference_wall_s} {timing.candidate_wall_s}, excess {walls}, spent {timing.extra.get('spent_s')}", flush=True)


results = []
for number in range(rounds):
    if time.monotonic() - began > limit_s * number / max(number + 1, 1) and number:
        print(f"no time for round {number + 1}")
        break
    outcomes = runner.run_selftest(seed=secrets.randbits(60), cache=Path("/tmp/kbench-selftest"), wanted=wanted, tell=tell)
    print(f"== round {number + 1}, {time.monotonic() - began:.1f} s: {'sound' if runner.is_sound(outcomes) else 'UNSOUND'}")
    print("\n".join("  ".join(f"{cell:>11}" for cell in row) for row in runner.table(outcomes)))
    print("\n".join(runner.surprises(outcomes)))
    results.append([[o.entry.candidate.label, o.device, o.assessment, o.found] for o in outcomes])
folder.mkdir(parents=True, exist_ok=True)
(folder / "judge.json").write_text(json.dumps(results))
