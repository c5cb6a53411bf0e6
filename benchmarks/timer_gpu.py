"""The rows of `benchmarks.timer` that need a GPU: kbench's own clock against known truths and other instruments."""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks import real
from benchmarks.timer_rows import Alikeness, Row, Scale, alikeness
from kbench import stats
from kbench.worker import cudart
from kbench.worker.timing import kernels, slots, steady

ROOT = Path(__file__).parents[1]
DEVICE = "cuda"
_NO_ARGUMENTS = {"k": "seq", "items": [], "tuple": False}
_SPIN = r"""
extern "C" __global__ void spin(int nanoseconds) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - begin < (unsigned long long)nanoseconds);
}
"""


class Clock:
    """kbench's timer of slots around a call of this process."""

    def __init__(self, call: Callable[[], Any]) -> None:
        memory = torch.zeros(4096, dtype=torch.uint8, device=DEVICE)
        self._call = lambda: (call(), None)[1]
        self.timer = slots.CudaTimer(call=self._call, inputs=memory, outputs=memory, places=[[]])
        self.timer.wall({"args": [_NO_ARGUMENTS], "calls": 12})

    def slots(self, count: int = 30, *, cold: bool = True) -> list[float]:
        return [self._slot(cold=cold) for _ in range(count)]

    def _slot(self, *, cold: bool) -> float:
        answer: dict[str, Any] = {}
        for doubled in range(3):
            answer = self.timer.slot({"args": [_NO_ARGUMENTS], "seed": 0, "cold": cold, "doubled": doubled})
            if not answer["may_hide"]:
                break
        return float(answer["seconds"])

    def median_s(self, count: int = 30, *, cold: bool = True) -> float:
        return stats.median(self.slots(count, cold=cold))

    def graph_s(self, calls: int, count: int = 12) -> float:
        """Seconds a call by the slope over chains of a graph."""
        chains = steady.Steady(self.timer, self._call, [[]], kind="graph", calls=calls)
        slopes = []
        for _ in range(count):
            seconds = chains.measure(0)[0]["seconds"]
            slopes.append((seconds[-1] - seconds[0]) / ((steady.CHAINS[-1] - steady.CHAINS[0]) * calls))
        return stats.median(slopes)


def traced(call: Callable[[], Any]) -> dict[str, Any]:
    """What CUPTI says of a call that was queued while the device slept."""
    return kernels.trace(call, [[]], lambda: torch.cuda._sleep(2_000_000))


@functools.cache
def monitor() -> Any:
    try:
        import pynvml  # noqa: PLC0415
    except ImportError:
        return None
    pynvml.nvmlInit()
    return pynvml


@functools.cache
def spinner() -> Any:
    return torch.cuda._compile_kernel(_SPIN, "spin")


def spin(microseconds: float) -> Callable[[], None]:
    kernel, nanoseconds = spinner(), int(microseconds * 1000)
    return lambda: kernel(grid=(1, 1, 1), block=(1, 1, 1), args=(nanoseconds,))


@functools.cache
def warm() -> None:
    """An idle GPU runs at a fifth of its clock, and one that has just multiplied matrices at what its power cap allows."""
    started = time.monotonic()
    while time.monotonic() - started < 0.5:
        torch.cuda._sleep(20_000_000)
        torch.cuda.synchronize()


def fit(xs: list[float], ys: list[float]) -> tuple[float, float, float]:
    """Fit y = a + b x; a, b and 1 - R²."""
    b, a = statistics.linear_regression(xs, ys)
    mean = statistics.fmean(ys)
    rest = sum((y - a - b * x) ** 2 for x, y in zip(xs, ys, strict=True))
    return a, b, rest / sum((y - mean) ** 2 for y in ys)


def us(seconds: float) -> str:
    return f"{seconds * 1e6:.2f}"


# Known truths.


def g1(_scale: Scale) -> Iterable[Row]:
    warm()
    timer = Clock(lambda: None).timer
    cycles = [int(2e4 * 150 ** (i / 11)) for i in range(12)]
    seconds = [stats.median([timer._slept(c) for _ in range(9)]) for c in cycles]
    a, per_cycle, rest = fit([float(c) for c in cycles], seconds)
    clock, apart = "no NVML", 0.0
    if (nvml := monitor()) is not None:
        handle = nvml.nvmlDeviceGetHandleByIndex(0)
        # The clock follows the load: what NVML says counts for the sleep during which it was asked.
        slept, asked = [], []
        for _ in range(5):
            start, _, end = timer._events
            start.record()
            timer._sleep(100_000_000)
            end.record()
            time.sleep(0.02)
            asked.append(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
            cudart.synchronize()
            slept.append(100_000_000 / start.seconds_until(end) / 1e6)
        apart = abs(stats.median([ours / theirs - 1 for ours, theirs in zip(slept, asked, strict=True)]))
        clock = f"in a long sleep {stats.median(slept):.0f} MHz, by NVML {stats.median(asked):.0f}"
    yield Row(
        number="G1",
        test="_sleep(c), c = 2e4 to 3e6: t = a + c/f",
        demand="1-R² < 1e-5; f within 2 % of NVML's SM clock; a <= 8 us",
        figure=f"{rest:.1e}; f {1e-6 / per_cycle:.0f} MHz; {clock}; a {us(a)} us",
        kept=rest < 1e-5 and apart <= 0.02 and a <= 8e-6,
    )


def g2(_scale: Scale) -> Iterable[Row]:
    warm()
    # What a launch of it costs besides: spins of nothing, in a chain.
    floor_s = Clock(spin(0)).graph_s(50)
    found, kept = [], True
    for micros in (5, 20, 100, 1000):
        clock = Clock(spin(micros))
        raw_s, slope_s = clock.median_s(), clock.graph_s(max(1, math.ceil(100 / micros)))
        truth_s = micros * 1e-6 + floor_s
        kept = kept and abs(raw_s - truth_s) <= max(2e-6, 0.01 * truth_s) and abs(slope_s - truth_s) <= max(0.2e-6, 0.01 * truth_s)
        found.append(f"{micros}: {us(raw_s)}, {us(slope_s)}")
    yield Row(
        number="G2",
        test=f"a kernel that spins until globaltimer + T, and {us(floor_s)} us for its launch; T: raw, slope (us)",
        demand="raw within 2 us or 1 %, slope within 0.2 us or 1 %",
        figure="; ".join(found),
        kept=kept,
    )


def _sleeping(cycles: int) -> real.Kind:
    return real.Kind(forward=f"torch.cuda._sleep({cycles}); return x + 1", inputs="torch.randn(1024, device=D)")


def _cycles_for(seconds: list[float]) -> list[int]:
    """Cycles of sleep with which `_sleeping` takes so long, by a fit of this clock's."""
    warm()
    x = torch.randn(1024, device=DEVICE)

    def take(cycles: int) -> float:
        return Clock(lambda: (torch.cuda._sleep(cycles), x + 1)).median_s(20)

    tried = [20_000, 60_000, 150_000, 300_000]
    a, b, _ = fit([float(c) for c in tried], [take(c) for c in tried])
    return [round((s - a) / b) for s in seconds]


def g3(scale: Scale) -> Iterable[Row]:
    plan = [(1.05, 20e-6, 0.01, scale.runs(100)), (1.02, 100e-6, 0.005, scale.runs(20)), (1.003, 100e-6, 0.01, scale.runs(20))]
    if scale.quick:
        plan = [(1.05, 20e-6, 0.01, 6)]
    cycles = _cycles_for([s for ratio, base_s, *_ in plan for s in (ratio * base_s, base_s)])
    pairs = [
        real.Pair(
            name=f"ratio_{ratio}".replace(".", "_"),
            reference=_sleeping(cycles[2 * i]),
            candidate=_sleeping(cycles[2 * i + 1]),
            processes=runs,
            precision=precision,
        )
        for i, (ratio, _, precision, runs) in enumerate(plan)
    ]
    for (ratio, base_s, precision, _), outcome in zip(plan, real.time_pairs(pairs, device=scale.device), strict=True):
        test = f"a true {ratio}, {base_s * 1e6:.0f} us, --precision {precision:g}"
        if outcome.problem:
            yield Row(number="G3", test=test, demand="", figure=outcome.problem, kept=False)
            continue
        runs, alike = len(outcome.runs), alikeness(outcome, ratio)
        called = sum(one["verdict"] == "faster" for one in outcome.runs)
        near = sum(abs(one["speedup"] - ratio) <= 0.005 for one in outcome.runs)
        wrong = sum(one["verdict"] == "slower" for one in outcome.runs)
        demand = {1.05: "called faster >= 95 %, within 0.005 >= 95 %", 1.02: "called faster >= 95 %", 1.003: "called <= 1 %"}[ratio]
        kept = {1.05: called >= 0.95 * runs and near >= 0.95 * runs, 1.02: called >= 0.95 * runs, 1.003: called <= 0.01 * runs}[ratio]
        figure = f"faster {called}, slower {wrong}, within 0.005 {near}; {alike}; all {len(outcome.alone)} pairs of processes: {_line(outcome)}"
        yield Row(number="G3", test=test, demand=demand, figure=figure, kept=kept and not wrong)


def _line(outcome: real.Outcome) -> str:
    timing = outcome.timing
    assert timing is not None
    return f"{timing.verdict} {timing.speedup:.4f} ({timing.speedup_low:.4f} to {timing.speedup_high:.4f})"


def g4(_scale: Scale) -> Iterable[Row]:
    warm()
    many = [torch.randn(2**25, device=DEVICE) for _ in range(4)]
    small = torch.randn(2**18, device=DEVICE)

    def once() -> None:
        torch.add(many[0], 1, out=many[1])

    def twice() -> None:
        torch.add(many[0], 1, out=many[1])
        torch.add(many[2], 1, out=many[3])

    def short() -> None:
        torch.add(small, 1, out=small)

    def short_twice() -> None:
        short()
        short()

    ratio = Clock(twice).median_s() / Clock(once).median_s()
    slope = Clock(short_twice).graph_s(30) / Clock(short).graph_s(30)
    yield Row(
        number="G4",
        test=f"additivity: f;f against f ({us(Clock(once).median_s(10))} us; {us(Clock(short).graph_s(30))} us by slope)",
        demand="2.00 +- 2 %; by slope +- 3 %",
        figure=f"{ratio:.4f}; {slope:.4f}",
        kept=abs(ratio / 2 - 1) <= 0.02 and abs(slope / 2 - 1) <= 0.03,
    )


def g5(_scale: Scale) -> Iterable[Row]:
    warm()
    one = torch.zeros((), device=DEVICE)
    clock = Clock(lambda: one.zero_())
    raw_s, slope_s = clock.median_s(), clock.graph_s(64)
    yield Row(
        number="G5",
        test="a kernel that does nothing: cold slot, graph slope",
        demand="<= 8 us, <= 2.5 us",
        figure=f"{us(raw_s)} us, {us(slope_s)} us",
        kept=raw_s <= 8e-6 and slope_s <= 2.5e-6,
    )


def g6(scale: Scale) -> Iterable[Row]:
    plain = real.Kind(forward="return torch.softmax(x, -1)", inputs="torch.randn(4096, 1024, device=D)")
    late = real.Kind(forward="time.sleep(0.001); return torch.softmax(x, -1)", inputs=plain.inputs)
    (outcome,) = real.time_pairs([real.Pair(name="late", reference=plain, candidate=late, processes=3)], device=scale.device)
    yield from _checked("G6", "1 ms of Python sleep before the launch", outcome, "cold within 1 % or host_bound; wall + 1.0 to 1.2 ms; flagged", _g6)


def _g6(outcome: real.Outcome) -> tuple[str, bool]:
    timing = outcome.timing
    assert timing is not None
    waits_s = (timing.candidate_wall_s or 0.0) - (timing.reference_wall_s or 0.0)
    kept = (abs(timing.speedup - 1) <= 0.01 or "host_bound" in timing.flags) and 1.0e-3 <= waits_s <= 1.2e-3 and "slow_launch" in timing.flags
    return f"cold {_line(outcome)}; wall + {waits_s * 1e3:.3f} ms; {' '.join(timing.flags)}", kept


def _checked(number: str, test: str, outcome: real.Outcome, demand: str, look: Callable[[real.Outcome], tuple[str, bool]]) -> Iterable[Row]:
    if outcome.problem:
        yield Row(number=number, test=test, demand=demand, figure=outcome.problem, kept=False)
        return
    figure, kept = look(outcome)
    yield Row(number=number, test=test, demand=demand, figure=figure, kept=kept)


def g7(_scale: Scale) -> Iterable[Row]:
    warm()
    x = torch.randn(2**16, device=DEVICE)

    def chain() -> None:
        y = x
        for _ in range(20):
            y = y * 1.0001

    span_s = Clock(chain).median_s(cold=False)
    cupti_s = traced(chain)["span_s"]
    yield Row(
        number="G7",
        test="a chain of 20 eager operations, launches hidden: span by events against CUPTI's",
        demand="within 3 %",
        figure=f"{us(span_s)} us, {us(cupti_s)} us: {span_s / cupti_s - 1:+.1%}",
        kept=abs(span_s / cupti_s - 1) <= 0.03,
    )


def g8(_scale: Scale) -> Iterable[Row]:
    warm()
    n = 2**22
    many = [torch.randn(n, device=DEVICE) for _ in range(24)]
    out = torch.empty((), device=DEVICE)
    turn = iter(range(10**9))

    def same() -> None:
        torch.sum(many[0], dim=0, out=out)

    def rotated() -> None:
        torch.sum(many[next(turn) % len(many)], dim=0, out=out)

    flushed_s, rotated_s, hot_s = Clock(same).median_s(), Clock(rotated).median_s(cold=False), Clock(same).median_s(cold=False)
    big = torch.randn(2**29, device=DEVICE)
    ceiling = big.numel() * 4 / Clock(lambda: torch.sum(big, dim=0, out=out)).median_s(9)
    rate = n * 4 / flushed_s
    yield Row(
        number="G8",
        test="reading 16 MB: cold by flush, cold by rotation, hot (us)",
        demand="cold within 3 % of each other; hot faster; cold GB/s <= 1.02 of the ceiling",
        figure=f"{us(flushed_s)}, {us(rotated_s)}, {us(hot_s)}; {rate / 1e9:.0f} of {ceiling / 1e9:.0f} GB/s",
        kept=abs(flushed_s / rotated_s - 1) <= 0.03 and hot_s < flushed_s and rate <= 1.02 * ceiling,
    )


def g9(_scale: Scale) -> Iterable[Row]:
    warm()
    a = torch.randn(2**29, device=DEVICE)
    b = torch.empty_like(a)
    clock = Clock(lambda: b.copy_(a))
    rates = [2 * a.numel() * 4 / clock.median_s(5) / 1e12 for _ in range(5)]
    spread = (max(rates) - min(rates)) / stats.median(rates)
    yield Row(
        number="G9",
        test="copying 2 GiB, five runs",
        demand="4.3 TB/s +- 3 % on an H200; within 1 %",
        figure=f"{stats.median(rates):.3f} TB/s; spread {spread:.2%}",
        kept=abs(stats.median(rates) / 4.3 - 1) <= 0.03 and spread <= 0.01,
    )


def g10(_scale: Scale) -> Iterable[Row]:
    warm()
    found, kept = [], True
    for size in (2**18, 2**22, 2**24, 2**27):
        x = torch.randn(size, device=DEVICE)
        y = torch.empty_like(x)

        def call(x: torch.Tensor = x, y: torch.Tensor = y) -> None:
            torch.mul(x, 2, out=y)

        clock = Clock(call)
        cold_s, hot_s, slope_s = clock.median_s(), clock.median_s(cold=False), clock.graph_s(max(1, min(64, 2**24 // size)))
        cupti_s = traced(call)["busy_s"]
        # CUPTI sees the call right after itself, as a hot slot does.
        if cupti_s >= 100e-6:
            fits = abs(hot_s / cupti_s - 1) <= 0.01
        elif cupti_s >= 10e-6:
            fits = abs(hot_s - cupti_s) <= max(2e-6, 0.03 * cupti_s)
        else:
            fits = 0.0 <= slope_s - cupti_s <= 1.5e-6
        kept = kept and fits
        found.append(f"{size // 1024} Ki: {us(cupti_s)} CUPTI, {us(hot_s)} hot, {us(slope_s)} slope, {us(cold_s)} cold{'' if fits else ' !'}")
    yield Row(
        number="G10",
        test="one kernel against CUPTI (us)",
        demand=">= 100 us: 1 %; 10 to 100 us: max(2 us, 3 %); < 10 us: slope - CUPTI in 0 to 1.5 us",
        figure="; ".join(found),
        kept=kept,
    )


_NCU_SCRIPT = """
import torch
x = torch.randn(2**26, device="cuda"); y = torch.empty_like(x)
s = torch.randn(8192, 4096, device="cuda")
a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
calls = [lambda: torch.mul(x, 2, out=y), lambda: torch.softmax(s, -1), lambda: a @ a]
for call in calls:
    for _ in range(5): call()
torch.cuda.synchronize()
torch.cuda.profiler.start()
for call in calls:
    for _ in range(3): call()
torch.cuda.synchronize()
torch.cuda.profiler.stop()
"""


def g11(_scale: Scale) -> Iterable[Row]:
    demand = "within 5 %"
    ncu = shutil.which("ncu") or next((str(p) for p in (Path("/usr/local/cuda/bin/ncu"),) if p.exists()), None)
    if ncu is None:
        yield Row(number="G11", test="against ncu gpu__time_duration", demand=demand, figure="ncu is not installed", kept=None)
        return
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(_NCU_SCRIPT)
        script.flush()
        options = ["--clock-control", "none", "--cache-control", "all", "--profile-from-start", "off", "--csv", "--metrics", "gpu__time_duration.sum"]
        run = subprocess.run([ncu, *options, sys.executable, script.name], capture_output=True, text=True, timeout=150, check=False)
    table = run.stdout[run.stdout.find('"ID"') :]
    rows = [row for row in csv.DictReader(io.StringIO(table)) if row.get("Metric Name") == "gpu__time_duration.sum"]
    units = {"ns": 1e-9, "nsecond": 1e-9, "us": 1e-6, "usecond": 1e-6, "ms": 1e-3, "msecond": 1e-3}
    durations = [float(row["Metric Value"].replace(",", "")) * units[row["Metric Unit"]] for row in rows]
    if len(durations) != 9:
        yield Row(number="G11", test="against ncu", demand=demand, figure=f"{len(durations)} kernels seen: {(run.stdout + run.stderr)[-400:]}", kept=None)
        return
    warm()
    x = torch.randn(2**26, device=DEVICE)
    y = torch.empty_like(x)
    s = torch.randn(8192, 4096, device=DEVICE)
    a = torch.randn(4096, 4096, device=DEVICE, dtype=torch.bfloat16)
    calls: list[Callable[[], Any]] = [lambda: torch.mul(x, 2, out=y), lambda: torch.softmax(s, -1), lambda: a @ a]
    found = [(Clock(call).median_s(15), stats.median(durations[3 * i : 3 * i + 3])) for i, call in enumerate(calls)]
    yield Row(
        number="G11",
        test="against ncu gpu__time_duration, --clock-control none --cache-control all: pointwise, softmax, GEMM (us)",
        demand=demand,
        figure="; ".join(f"{us(ours)} / {us(theirs)} {ours / theirs - 1:+.1%}" for ours, theirs in found),
        kept=all(abs(ours / theirs - 1) <= 0.05 for ours, theirs in found),
    )


# The same code on both sides, in two processes.

KINDS = {
    "pointwise": real.Kind(forward="return torch.relu(x)", inputs="torch.randn(512, 512, device=D)"),
    "softmax": real.Kind(forward="return torch.softmax(x, -1)", inputs="torch.randn(4096, 1024, device=D)"),
    "gemm": real.Kind(
        forward="return x @ y",
        inputs="torch.randn(4096, 4096, device=D, dtype=torch.bfloat16), torch.randn(4096, 4096, device=D, dtype=torch.bfloat16)",
        args="x, y",
    ),
    "chain": real.Kind(forward="y = x\n        for _ in range(20): y = torch.tanh(y) * 1.1\n        return y", inputs="torch.randn(256, 1024, device=D)"),
    "mutating": real.Kind(forward="x.mul_(1.5).add_(1); return x", inputs="torch.randn(1024, 1024, device=D)"),
    "compiled": real.Kind(
        forward="return self.f(x)",
        inputs="torch.randn(2048, 1024, device=D)",
        init="self.f = torch.compile(lambda x: torch.softmax(torch.relu(x) * 2, -1) + 1)",
    ),
}


@dataclass
class Tally:
    """Verdicts over several kinds."""

    runs: int = 0
    called: int = 0
    held: int = 0

    def add(self, alike: Alikeness) -> None:
        self.runs, self.called, self.held = self.runs + alike.runs, self.called + alike.called, self.held + alike.held


@functools.cache
def twelve(scale: Scale) -> list[real.Outcome]:
    """The six kinds against themselves; compiling in each fresh process takes long, so of that one there are fewer."""
    runs = {name: scale.runs(20) for name in KINDS} | {"compiled": 5}
    if scale.quick:
        runs |= {"compiled": 0, "mutating": 0}
    pairs = [real.Pair(name=name, reference=KINDS[name], candidate=KINDS[name], processes=count) for name, count in runs.items() if count]
    return real.time_pairs(pairs, device=scale.device)


def g12(scale: Scale) -> Iterable[Row]:
    runs, alone = Tally(), Tally()
    for outcome in twelve(scale):
        test = f"A/A, {outcome.pair.name}"
        if outcome.timing is None:
            yield Row(number="G12", test=test, demand="", figure=outcome.problem, kept=False)
            continue
        alike, t_s = alikeness(outcome), outcome.timing.reference_s
        most = 0.005 if t_s >= 50e-6 else 0.015
        runs.add(alike)
        alone.add(alikeness(dataclasses.replace(outcome, runs=outcome.alone)))
        each = " ".join(f"{one['speedup']:.4f}" for one in outcome.alone)
        yield Row(
            number="G12",
            test=f"A/A, {outcome.pair.name} ({us(t_s)} us), {len(outcome.alone)} pairs of fresh processes",
            demand=f"95 % of ratios within {most:.1%}",
            figure=f"{alike}; all together {_line(outcome)}; each {each}",
            kept=alike.p95_error <= most,
        )
    for tally, what in ((alone, "pairs of processes, each by itself"), (runs, "runs, each of as many of them as settle it")):
        yield Row(
            number="G12",
            test=f"A/A, {tally.runs} {what}",
            demand="called faster or slower <= 1 of 120; interval holds 1 in >= 95 %",
            figure=f"{tally.called}; {tally.held} of {tally.runs}",
            kept=tally.called <= max(1, tally.runs // 120) and tally.held >= math.floor(0.95 * tally.runs),
        )


def g13(scale: Scale) -> Iterable[Row]:
    one = KINDS["softmax"]
    other = real.Kind(forward="e = torch.exp(x - x.amax(-1, keepdim=True)); return e / e.sum(-1, keepdim=True)", inputs=one.inputs)
    pairs = [
        real.Pair(name="there", reference=one, candidate=other, processes=4),
        real.Pair(name="back", reference=other, candidate=one, processes=4),
    ]
    there, back = real.time_pairs(pairs, device=scale.device)
    if there.problem or back.problem:
        yield Row(number="G13", test="swapped", demand="", figure=there.problem or back.problem, kept=False)
        return
    assert there.timing is not None and back.timing is not None
    product = there.timing.speedup * back.timing.speedup
    yield Row(
        number="G13",
        test="r(A, B) r(B, A), softmax against its parts",
        demand="1 +- 1 %",
        figure=f"{product:.4f}: {_line(there)}, {_line(back)}",
        kept=abs(product - 1) <= 0.01,
    )


_HEATER = """
import sys, time, torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
print("hot", flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    for _ in range(4): a @ a
    torch.cuda.synchronize()
"""


def g14(scale: Scale) -> Iterable[Row]:
    kind = KINDS["softmax"]
    # Importing torch anew leaves the GPU idle for seconds; the first pair starts cold.
    time.sleep(2 if scale.quick else 10)
    (cold,) = real.time_pairs([real.Pair(name="cold_start", reference=kind, candidate=kind)], device=scale.device)
    heater = subprocess.Popen([sys.executable, "-c", _HEATER, "25"], stdout=subprocess.PIPE, text=True)
    try:
        assert heater.stdout is not None
        heater.stdout.readline()
        (heated,) = real.time_pairs([real.Pair(name="heated", reference=kind, candidate=kind)], device=scale.device)
    finally:
        heater.terminate()
        heater.wait()
    for name, outcome in (("a cold start", cold), ("another process heats the GPU", heated)):

        def look(outcome: real.Outcome) -> tuple[str, bool]:
            assert outcome.timing is not None
            return f"{_line(outcome)}; {' '.join(outcome.timing.flags)}", abs(outcome.timing.speedup - 1) <= 0.01 or bool(outcome.timing.flags)

        yield from _checked("G14", f"A/A, {name}", outcome, "ratio within 1 %, or flagged", look)


def g15(scale: Scale) -> Iterable[Row]:
    for outcome in twelve(scale):
        if outcome.problem or outcome.timing is None:
            continue
        times = [one["reference_s"] for one in outcome.alone[:10]]
        spread = (max(times) - min(times)) / stats.median(times)
        pooled = outcome.timing.speedup
        held = sum(one["speedup_low"] <= pooled <= one["speedup_high"] for one in outcome.alone[:10])
        long = stats.median(times) >= 20e-6
        yield Row(
            number="G15",
            test=f"{len(times)} fresh processes, {outcome.pair.name} ({us(stats.median(times))} us)",
            demand=("spread <= 2 %; " if long else "") + "the value over all in the interval of >= 8 of 10",
            figure=f"spread of the reference {spread:.2%}; in {held} of {len(times)}",
            kept=(spread <= 0.02 or not long) and held >= 0.8 * len(times),
        )


_CHEATS = ("*/time_cuda_*", "*/bug_cuda_wrong_stream", "*/cache_by_pointer", "*/time_lazy_subclass", "*/time_thread_fills_later", "*/time_shaves_clock")


def g16(_scale: Scale) -> Iterable[Row]:
    run = subprocess.run([sys.executable, "-m", "kbench", "selftest", *_CHEATS], cwd=ROOT, capture_output=True, text=True, check=False)
    outcomes = [line for line in run.stderr.splitlines() if ":" in line]
    yield Row(
        number="G16",
        test="cheats: a side stream, patched events, synchronize and clocks, results by address, lazy tensors, threads",
        demand="all refused",
        figure=f"{len(outcomes)} tried: " + "; ".join(" ".join(line.split()) for line in outcomes)[:900],
        kept=run.returncode == 0 and bool(outcomes),
    )


def g17(scale: Scale) -> Iterable[Row]:
    found, kept = [], True
    for outcome in twelve(scale):
        if outcome.problem or outcome.timing is None:
            continue
        extra: Any = outcome.timing.extra
        pairs = len(outcome.alone)
        gpu_s, wall_s = (extra.get("gpu_s") or 0.0) / pairs, (extra.get("wall_s") or 0.0) / pairs
        kept = kept and gpu_s <= 0.5 and wall_s <= 1.5
        stages = " ".join(f"{name} {seconds / pairs:.2f}" for name, seconds in extra.get("spent_s", {}).items() if name != "all")
        found.append(f"{outcome.pair.name} {gpu_s:.2f}, {wall_s:.2f} ({stages})")
    yield Row(
        number="G17",
        test="cost of timing one candidate in one pair of processes: seconds of GPU, of wall time (by stage)",
        demand="<= 0.5 s of GPU, <= 1.5 s in all",
        figure="; ".join(found),
        kept=kept,
    )


# Peers on the same kinds, in one process, one side after the other, as they are used.


def g18(scale: Scale) -> Iterable[Row]:
    for name, measure in _peers().items():
        runs, found = scale.runs(20), []
        for kind_name in ("pointwise", "softmax", "gemm", "chain"):
            call = _callable(KINDS[kind_name])
            started = time.monotonic()
            different = errors = 0
            ratios = []
            for _ in range(runs):
                (a, a_low, a_high), (b, b_low, b_high) = measure(call), measure(call)
                ratios.append(a / b)
                errors += abs(a / b - 1) > 0.01
                different += a_low > b_high or b_low > a_high
            seconds = (time.monotonic() - started) / runs
            found.append(f"{kind_name}: beyond 1 % {errors}/{runs}, quartiles apart {different}/{runs}, {seconds:.2f} s")
        yield Row(number="G18", test=f"{name}: A/A in one process", demand="(for comparison)", figure="; ".join(found), kept=None)
    for name, module in (("flashinfer bench_gpu_time", "flashinfer"), ("nvbench", "cuda.bench")):
        try:
            __import__(module)
        except ImportError:
            yield Row(number="G18", test=name, demand="(for comparison)", figure="not installed", kept=None)


def _callable(kind: real.Kind) -> Callable[[], Any]:
    space: dict[str, Any] = {}
    exec(kind.source("Model", "cuda"), space)  # noqa: S102 - our own text
    model, inputs = space["Model"](), space["get_inputs"]()
    return lambda: model(*inputs)


def _peers() -> dict[str, Callable[[Callable[[], Any]], tuple[float, float, float]]]:
    """How each peer times a call: its figure, and the quartiles that it gives."""
    from torch.utils import benchmark  # noqa: PLC0415

    def torch_benchmark(call: Callable[[], Any]) -> tuple[float, float, float]:
        found = benchmark.Timer("call()", globals={"call": call}).blocked_autorange(min_run_time=0.1)
        return found.median, found._p25, found._p75

    peers = {"torch.utils.benchmark": torch_benchmark}
    try:
        from triton import testing  # noqa: PLC0415
    except ImportError:
        return peers

    def do_bench(call: Callable[[], Any]) -> tuple[float, float, float]:
        middle, low, high = testing.do_bench(call, quantiles=[0.5, 0.25, 0.75])
        return middle, low, high

    return {"triton.testing.do_bench": do_bench, **peers}
