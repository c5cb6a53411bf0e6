"""What a terminal shows: readable when narrow, plain in a pipe, and deaf to what a candidate says."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from kbench.records import Build, Candidate, Case, CheckResult, Comparison, Kernel, Status, Task, Timing, Verdict
from kbench.reports.terminal import list_table, timing_line, verdict_line

PASSED = Verdict(task="cvae", candidate="fused", device="cuda:0", status=Status.PASS, trials=5, seconds=0.612)
FAILED = Verdict(
    task="cvae",
    candidate="zeros",
    device="cpu",
    status=Status.FAIL,
    reason="values",
    case="large",
    detail="output[1]: 12 of 4096 elements outside",
    warnings=("weights were copied by shape",),
)
TIMING = Timing(
    case="default",
    verdict=Comparison.FASTER,
    timer="cuda_events_cold",
    pairs=40,
    reference_s=457e-6,
    candidate_s=197e-6,
    speedup=2.319,
    speedup_low=2.284,
    speedup_high=2.351,
)


def shown(what: RenderableType, width: int = 80, **options: object) -> str:
    """What a pipe gets, unless the options say otherwise; without the spaces at the ends of lines."""
    file = io.StringIO()
    Console(file=file, width=width, **options).print(what)  # type: ignore[arg-type]
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def test_a_pass_is_one_line() -> None:
    assert shown(verdict_line(PASSED)) == "pass  cvae/fused  cuda:0  5 trials, 612 ms"


def test_what_was_asked_besides_is_counted_in_the_line_of_a_pass() -> None:
    found = {
        "values": Status.PASS,
        "contract:grad": Status.PASS,
        "contract:thread": Status.FAIL,
        "contract:graph": Status.SKIP,
        "sanitize:memcheck": Status.PASS,
    }
    checks = tuple(CheckResult(name=name, status=status) for name, status in found.items())
    line = shown(verdict_line(dataclasses.replace(PASSED, checks=checks)), width=200)
    assert line == "pass  cvae/fused  cuda:0  5 trials, 1 of 2 contracts hold, sanitized by memcheck, 612 ms"


def test_one_trial_is_one() -> None:
    assert shown(verdict_line(dataclasses.replace(PASSED, trials=1))) == "pass  cvae/fused  cuda:0  1 trial, 612 ms"


def test_kernels_that_spill_are_named_and_others_are_not() -> None:
    spilled = Kernel(name="k<float, 3>", registers=255, spill_store_bytes=96, spill_load_bytes=128)
    build = Build(name="extension", ok=True, kernels=(spilled, Kernel(name="lean", registers=16)))
    lines = shown(verdict_line(dataclasses.replace(PASSED, builds=(build,)))).splitlines()

    assert lines[1:] == ["      k<float, 3>: 255 registers, spills 96 bytes of stores and 128 of loads"]


def test_a_failure_says_why_and_what_to_know_besides() -> None:
    assert shown(verdict_line(FAILED)).splitlines() == [
        "fail  cvae/zeros  cpu",
        "      values: case large: output[1]: 12 of 4096 elements outside",
        "      warning: weights were copied by shape",
    ]


def test_a_case_is_said_once_and_the_only_one_not_at_all() -> None:
    twice = dataclasses.replace(FAILED, detail=f"case large: {FAILED.detail}")

    assert shown(verdict_line(twice)) == shown(verdict_line(FAILED))
    assert "case" not in shown(verdict_line(dataclasses.replace(FAILED, case="default")))


def test_a_skip_says_what_is_missing() -> None:
    skip = Verdict(task="t", candidate="c", device="cuda", status=Status.SKIP, detail="this machine has no GPU")

    assert shown(verdict_line(skip)).splitlines() == ["skip  t/c  cuda", "      this machine has no GPU"]


def test_a_time_has_its_interval_and_both_medians() -> None:
    assert shown(timing_line(PASSED, TIMING)).splitlines() == [
        "faster  cvae/fused  cuda:0  default",
        "      2.32× (2.28 to 2.35)  457 µs → 197 µs",
    ]


def test_flags_and_gains_that_are_launches_are_said() -> None:
    """Nothing of the gain is left in a graph; a CPU, which launches nothing, is not spoken of so."""
    timing = Timing(
        case="default",
        verdict=Comparison.UNRESOLVED,
        timer="cuda_events_cold",
        pairs=5,
        reference_s=50e-6,
        candidate_s=25e-6,
        speedup=2.0,
        speedup_low=1.9,
        speedup_high=2.1,
        reference_wall_s=400e-6,
        candidate_wall_s=100e-6,
        flags=("few_pairs",),
        extra={"reference_stream_s": 20e-6, "candidate_stream_s": 20e-6},
    )

    assert shown(timing_line(PASSED, timing)).splitlines()[1:] == [
        "      2.00× (too few pairs)  50.0 µs → 25.0 µs",
        "      wall 400 µs → 100 µs, in a stream 20.0 µs → 20.0 µs",
        "      few_pairs, gain is launch overhead",
    ]
    assert "launch" not in shown(timing_line(dataclasses.replace(PASSED, device="cpu"), timing))


def test_what_a_gpu_has_besides_is_one_line() -> None:
    extra = {
        "reference_graph_s": 60e-6,
        "candidate_graph_s": 5e-6,
        "reference_kernels": 28,
        "candidate_kernels": 1,
        "reference_energy_j": 0.012,
        "candidate_energy_j": 0.0008,
        "sol_s": 100e-6,
        "sol_bound": "memory",
    }
    timing = dataclasses.replace(TIMING, reference_wall_s=595e-6, candidate_wall_s=250e-6, extra=extra, notes=("clocks unknown",))

    assert shown(timing_line(PASSED, timing), width=200).splitlines()[2:] == [
        "      wall 595 µs → 250 µs, in a graph 60.0 µs → 5.00 µs, 12.0 mJ → 800 µJ, kernels 28 → 1, speed of light 51 % (memory)",
    ]


def test_energy_that_was_asked_for_and_not_measured_says_why() -> None:
    timing = dataclasses.replace(TIMING, notes=("clocks unknown", "energy not measured: no counter"))

    assert shown(timing_line(PASSED, timing)).splitlines()[2:] == ["      energy not measured: no counter"]


def test_the_list_shows_selectors_cases_and_what_is_broken() -> None:
    tasks = [
        Task(name="cvae", reference=Path("cvae.py"), cases=(Case(), Case(name="large"))),
        Task(name="broken", reference=Path("broken.py"), error="line 3: invalid syntax"),
    ]
    candidates = [
        Candidate(task="cvae", name="fused", source=Path("fused.py"), language="cuda", devices=("cuda",)),
        Candidate(task="cvae", name="typo", source=Path("typo.py"), error="no `ModelNew`"),
    ]

    assert shown(list_table(tasks, candidates)).splitlines() == [
        "Selector                  Language  Devices            Cases",
        "cvae                                                   default, large",
        "cvae/fused                cuda      cuda, cuda-on-cpu",
        "cvae/typo                 torch     cpu, cuda",
        "  no `ModelNew`",
        "broken                                                 default",
        "  line 3: invalid syntax",
    ]


@pytest.mark.parametrize("what", [verdict_line(FAILED), timing_line(PASSED, TIMING)])
def test_forty_columns_lose_nothing(what: RenderableType) -> None:
    narrow = shown(what, width=40)

    assert max(map(len, narrow.splitlines())) <= 40
    assert narrow.split() == shown(what).split()


def test_a_narrow_list_folds_names_and_loses_no_letter() -> None:
    name = "a_rather_long_name_of_a_candidate"
    table = list_table([], [Candidate(task="cvae", name=name, source=Path("x.py"))])

    narrow = shown(table, width=40)

    assert max(map(len, narrow.splitlines())) <= 40
    assert f"cvae/{name}" in "".join(line.split(" ")[0] for line in narrow.splitlines())


def test_a_terminal_gets_colour_and_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1;32mpass" in shown(verdict_line(PASSED), force_terminal=True, color_system="standard")

    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[1;32m" not in shown(verdict_line(PASSED), force_terminal=True, color_system="standard")


@settings(deadline=None, max_examples=100)
@given(st.text(max_size=30) | st.text(alphabet="[]/\\bold\x1b\x9b\r\n\b\a\u202e :red", max_size=20))
def test_no_candidate_can_write_markup_or_control_codes(text: str) -> None:
    verdict = Verdict(task="t", candidate=text, device=text, status=Status.FAIL, reason="run", detail=text, warnings=(text,))
    candidate = Candidate(task=text, name=text, source=Path("x.py"), error=text)

    for what in (verdict_line(verdict), list_table([], [candidate])):
        output = shown(what, width=400, force_terminal=True, color_system=None)
        assert all(character.isprintable() for character in output.replace("\n", ""))
    assert len(shown(verdict_line(verdict), width=400).splitlines()) <= 3
    assert "[bold]x[/]" in shown(list_table([], [Candidate(task="t", name="[bold]x[/]", source=Path("x.py"))]))


def test_a_long_detail_is_cut_where_it_is_shown() -> None:
    verdict = Verdict(task="t", candidate="c", device="cpu", status=Status.FAIL, reason="build", detail="x" * 10**5)

    assert len(shown(verdict_line(verdict), width=10**6)) < 500
