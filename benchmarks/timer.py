"""What the clock promises, and what it keeps: one row a test, with the demand and the figure.

    python benchmarks/timer.py                        all that this machine can show
    python benchmarks/timer.py --only C1,C2,G3        some rows
    python benchmarks/timer.py --device cpu --quick   fewer runs

Exits 1 where a figure falls short of its demand. C rows need no GPU; G rows need one, and say so where there is none.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import noise, real  # noqa: E402
from benchmarks.timer_rows import DIFFERENT, Row, Scale, alikeness  # noqa: E402
from kbench import __version__, stats  # noqa: E402

# Without a GPU: simulation, and the CPU's own clock.


def c1(_scale: Scale) -> Iterable[Row]:
    runs = 400
    worst = {"called": 0, "held_95": runs, "held_99": runs}
    for model in noise.MODELS:
        called = held_95 = held_99 = 0
        for seed in range(runs):
            run = noise.SimulatedRun(model, seed)
            interval = stats.rank_interval(run.measure_until_finished(), 0.95)
            timing = run.timing()
            called += timing.verdict in DIFFERENT
            held_95 += interval.low <= 0 <= interval.high
            held_99 += timing.speedup_low <= 1 <= timing.speedup_high
        worst = {
            "called": max(worst["called"], called),
            "held_95": min(worst["held_95"], held_95),
            "held_99": min(worst["held_99"], held_99),
        }
    yield Row(
        number="C1",
        test=f"A/A on {len(noise.MODELS)} noise models, {runs} runs each, full stopping rule",
        demand="worst model: called <= 1 %; 95 % interval holds >= 92 %, 99 % interval >= 98 %",
        figure=f"{worst['called'] / runs:.2%}; {worst['held_95'] / runs:.1%}, {worst['held_99'] / runs:.1%}",
        kept=worst["called"] <= 0.01 * runs and worst["held_95"] >= 0.92 * runs and worst["held_99"] >= 0.98 * runs,
    )


def c2(_scale: Scale) -> Iterable[Row]:
    runs = 200
    shares = {0.02: 1.0, 0.003: 0.0}
    for model in noise.MODELS:
        for effect, choose in ((0.02, min), (0.003, max)):
            found = 0
            for seed in range(runs):
                run = noise.SimulatedRun(model, seed, effect)
                run.measure(40 * noise.PER_BLOCK)
                found += run.timing().verdict in DIFFERENT
            shares[effect] = choose(shares[effect], found / runs)
    yield Row(
        number="C2",
        test=f"power: 40 blocks at 1 % noise, {runs} runs a model",
        demand="worst model: a 2 % effect called >= 90 %, a 0.3 % effect <= 1 %",
        figure=f"{shares[0.02]:.1%}; {shares[0.003]:.1%}",
        kept=shares[0.02] >= 0.9 and shares[0.003] <= 0.01,
    )


def c3(_scale: Scale) -> Iterable[Row]:
    blocks = sorted(len(noise.SimulatedRun(noise.independent, seed).measure_until_finished()) for seed in range(200))
    again = [noise.SimulatedRun(noise.regimes, 7).measure_until_finished() for _ in range(2)]
    p90 = blocks[int(0.9 * len(blocks))]
    yield Row(
        number="C3",
        test="stopping at 1 % noise; two runs of one seed",
        demand="90th percentile <= 20 blocks; identical",
        figure=f"{p90} blocks; {'identical' if again[0] == again[1] else 'different'}",
        kept=p90 <= 20 and again[0] == again[1],
    )


def c4(_scale: Scale) -> Iterable[Row]:
    found = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            *(f"tests/worker/timing/{name}.py" for name in ("test_cuda_clock", "test_monitor")),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    words = (found.stdout.strip().splitlines() or found.stderr.strip().splitlines() or [""])[-1]
    yield Row(
        number="C4",
        test="fake GPU: unhidden launch, sync inside, allocation in a slot, throttled for ever, rounded times",
        demand="each flagged, each ends with a result",
        figure=words,
        kept=found.returncode == 0,
    )


CPU_KINDS = {
    "matmul_5us": real.Kind(forward="return x @ self.w", inputs="torch.randn(32, 32)", init="self.w = torch.nn.Parameter(torch.randn(32, 32))"),
    "matmul_300us": real.Kind(forward="return x @ self.w", inputs="torch.randn(384, 384)", init="self.w = torch.nn.Parameter(torch.randn(384, 384))"),
}


def c5(scale: Scale) -> Iterable[Row]:
    processes = scale.runs(100)
    pairs = [real.Pair(name=name, reference=kind, candidate=kind, processes=processes) for name, kind in CPU_KINDS.items()]
    for outcome in real.time_pairs(pairs, device="cpu"):
        if outcome.timing is None:
            yield Row(number="C5", test=f"CPU A/A, {outcome.pair.name}", demand="", figure=outcome.problem, kept=False)
            continue
        alike = alikeness(outcome)
        yield Row(
            number="C5",
            test=f"CPU A/A, {outcome.pair.name} ({outcome.timing.reference_s * 1e6:.1f} us), {len(outcome.alone)} pairs of fresh processes",
            demand="called 0 or 1 a hundred; interval holds 1 in >= 95 %; median error <= 0.5 %",
            figure=str(alike),
            kept=alike.is_sound and alike.median_error <= 0.005,
        )


def c6(_scale: Scale) -> Iterable[Row]:
    def sleeping(seconds: float) -> real.Kind:
        return real.Kind(forward=f"time.sleep({seconds}); return x + 1", inputs="torch.randn(64)")

    long, short = sleeping(0.002), sleeping(0.001)
    pairs = [real.Pair(name="there", reference=long, candidate=short), real.Pair(name="back", reference=short, candidate=long)]
    there, back = real.time_pairs(pairs, device="cpu")
    test, demand = (
        "sleeps of 2 ms against 1 ms, and swapped, on the CPU",
        "2.0 +- 5 % (a sleep takes 0.06 ms longer), each the inverse of the other within its interval",
    )
    if there.timing is None or back.timing is None:
        yield Row(number="C6", test=test, demand=demand, figure=there.problem or back.problem, kept=False)
        return
    one, other = there.timing, back.timing
    inverse = other.speedup_low * one.speedup_low <= 1 <= other.speedup_high * one.speedup_high
    yield Row(
        number="C6",
        test=test,
        demand=demand,
        figure=f"{one.verdict} {one.speedup:.4f} ({one.speedup_low:.4f} to {one.speedup_high:.4f}), {other.verdict} {other.speedup:.4f}",
        kept=abs(one.speedup / 2 - 1) <= 0.05 and inverse and (one.verdict, other.verdict) == ("faster", "slower"),
    )


def gpu_row(number: str) -> Callable[[Scale], Iterable[Row]]:
    """Put a row off until there is a GPU."""

    def run(scale: Scale) -> Iterable[Row]:
        if scale.device == "cpu":
            yield Row(number=number, test="", demand="", figure="needs a GPU", kept=None)
            return
        from benchmarks import timer_gpu  # noqa: PLC0415 - imports torch

        yield from getattr(timer_gpu, number.lower())(scale)

    return run


ROWS: dict[str, Callable[[Scale], Iterable[Row]]] = {
    "C1": c1,
    "C2": c2,
    "C3": c3,
    "C4": c4,
    "C5": c5,
    "C6": c6,
    **{f"G{number}": gpu_row(f"G{number}") for number in range(1, 19)},
}


def machine(device: str) -> str:
    """Name the machine, as a reader of the figures must know it."""
    found = f"{platform.node()}, {os.cpu_count()} cores, Python {platform.python_version()}, kbench {__version__}"
    if device == "cpu":
        return found
    import torch  # noqa: PLC0415

    return f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}, {found}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows, such as C1,G3")
    parser.add_argument("--quick", action="store_true", help="a fifth of the runs")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda:0")
    parser.add_argument("--output", type=Path, help="write the table there, too, in markdown")
    parser.add_argument("--json", type=Path, help="write the rows there, too")
    given = parser.parse_args()
    names = [name.strip().upper() for name in given.only.split(",") if name.strip()] or list(ROWS)
    if unknown := [name for name in names if name not in ROWS]:
        parser.error(f"no row {unknown[0]}; there are {', '.join(ROWS)}")
    scale = Scale(device=("cuda:0" if has_gpu() else "cpu") if given.device == "auto" else given.device, quick=given.quick)
    head = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC, {machine(scale.device)}"
    print(head, flush=True)
    rows: list[Row] = []
    for name in names:
        started = time.monotonic()
        try:
            found = list(ROWS[name](scale))
        except Exception as error:  # noqa: BLE001 - one row must not cost the others
            import traceback  # noqa: PLC0415

            traceback.print_exc()
            found = [Row(number=name, test="", demand="", figure=f"{type(error).__name__}: {error}", kept=False)]
        for row in found:
            print(f"{row.number:4} {said(row):5} {row.test} | {row.demand} | {row.figure}", flush=True)
        print(f"     ({time.monotonic() - started:.1f} s)", flush=True)
        rows += found
        if given.output:
            given.output.write_text(markdown(head, rows))
        if given.json:
            given.json.write_text(json.dumps([vars(row) for row in rows], indent=1))
    return 1 if any(row.kept is False for row in rows) else 0


def has_gpu() -> bool:
    import torch  # noqa: PLC0415

    return bool(torch.cuda.is_available())


def said(row: Row) -> str:
    return {True: "kept", False: "SHORT", None: "-"}[row.kept]


def markdown(head: str, rows: list[Row]) -> str:
    lines: list[list[Any]] = [["#", "Test", "Demand", "Figure", ""], ["---"] * 5, *([r.number, r.test, r.demand, r.figure, said(r)] for r in rows)]
    return "\n".join([head, "", *("| " + " | ".join(str(cell).replace("|", "/") for cell in line) + " |" for line in lines), ""])


if __name__ == "__main__":
    sys.exit(main())
