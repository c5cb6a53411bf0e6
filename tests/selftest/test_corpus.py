"""Every candidate of the corpus, through the real processes in one run, and how its outcome is judged."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from kbench.records import Candidate, Comparison, Reason, Status, Task, Timing, Verdict, exploit
from kbench.selftest import expectations, runner
from kbench.selftest.expectations import Assessment, Entry, Expectation, assess, discover_corpus

CORPUS = {entry.candidate.label: entry for entry in discover_corpus()}
# What only the clock can tell is left to `kbench selftest` on a quiet machine.
ON_CPU = [label for label, entry in CORPUS.items() if "cpu" in entry.expectation.devices and entry.expectation.run == "verify"]
ON_CUDA = [label for label, entry in CORPUS.items() if "cuda" in entry.expectation.devices]


def found_on(labels: list[str], cache: Path) -> dict[str, runner.Outcome]:
    outcomes = runner.run_selftest(seed=20260101, cache=cache, jobs=2, wanted=lambda entry: entry.candidate.label in labels)
    return {outcome.entry.candidate.label: outcome for outcome in outcomes}


@pytest.fixture(scope="module")
def cpu_outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, runner.Outcome]:
    return found_on(ON_CPU, tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def cuda_outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, runner.Outcome]:
    return found_on(ON_CUDA, tmp_path_factory.mktemp("cache"))


def assert_right(outcome: runner.Outcome) -> None:
    assert outcome.assessment in (Assessment.CAUGHT, Assessment.OK), "\n".join(runner.surprises([outcome]))


@pytest.mark.parametrize("label", ON_CPU)
def test_candidate_comes_out_right_on_the_cpu(label: str, cpu_outcomes: dict[str, runner.Outcome]) -> None:
    assert_right(cpu_outcomes[label])


@pytest.mark.gpu
@pytest.mark.parametrize("label", ON_CUDA)
def test_candidate_comes_out_right_on_the_gpu(label: str, cuda_outcomes: dict[str, runner.Outcome]) -> None:
    assert_right(cuda_outcomes[label])


@pytest.mark.parametrize("entry", CORPUS.values(), ids=CORPUS)
def test_expectation_names_known_reasons_and_fits_its_status(entry: Entry) -> None:
    expectation = entry.expectation
    plain = {str(reason) for reason in Reason} - {Reason.EXPLOIT, Reason.CONTRACT}
    assert all(reason in plain or re.fullmatch("(exploit|contract):[a-z_]+", reason) for reason in expectation.reasons)
    assert bool(expectation.reasons) == (expectation.status is not Status.PASS)
    assert expectation.run in ("verify", "time")
    assert expectation.max_speedup is None or expectation.run == "time"


# The judging of an outcome.

GAMING = Expectation(status=Status.FAIL, reasons=("values", exploit("clock")))
HONEST = Expectation(status=Status.PASS)


def verdict(status: Status, reason: str = "") -> Verdict:
    return Verdict(task="t", candidate="c", device="cpu", status=status, reason=reason)


def timing(speedup_low: float) -> Timing:
    return Timing(
        case="default",
        verdict=Comparison.FASTER,
        timer="cpu_monotonic",
        pairs=8,
        reference_s=1.0,
        candidate_s=1.0,
        speedup=speedup_low + 0.1,
        speedup_low=speedup_low,
        speedup_high=speedup_low + 0.2,
    )


@pytest.mark.parametrize(
    ("expectation", "found", "assessment"),
    [
        (GAMING, verdict(Status.FAIL, "values"), Assessment.CAUGHT),
        (GAMING, verdict(Status.FAIL, "exploit:clock"), Assessment.CAUGHT),
        (GAMING, verdict(Status.FAIL, "load"), Assessment.MISSED),
        (GAMING, verdict(Status.PASS), Assessment.MISSED),
        (GAMING, verdict(Status.ERROR, "machine"), Assessment.MISSED),
        (GAMING, verdict(Status.SKIP), Assessment.SKIPPED),
        (HONEST, verdict(Status.PASS), Assessment.OK),
        (HONEST, verdict(Status.FAIL, "values"), Assessment.FALSE_ALARM),
        (HONEST, verdict(Status.ERROR, "reference"), Assessment.FALSE_ALARM),
    ],
)
def test_outcome_is_held_against_what_is_right(expectation: Expectation, found: Verdict, assessment: Assessment) -> None:
    assert assess(expectation, found) is assessment


def test_trick_that_gains_nothing_is_caught_by_an_honest_time() -> None:
    limited = replace(GAMING, run="time", max_speedup=1.2)
    assert assess(limited, verdict(Status.PASS), [timing(1.1)]) is Assessment.CAUGHT
    assert assess(limited, verdict(Status.PASS), [timing(1.3)]) is Assessment.MISSED
    assert assess(limited, verdict(Status.PASS), []) is Assessment.MISSED


def test_file_without_an_expectation_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "group").mkdir()
    (tmp_path / "group" / "reference.py").touch()
    (tmp_path / "group" / "trick.py").write_text('"""Does something."""\n')
    with pytest.raises(ValueError, match=r"trick\.py: no literal"):
        expectations.discover_corpus(tmp_path)


def outcome(assessment: Assessment, name: str = "time_x") -> runner.Outcome:
    entry = Entry(
        task=Task(name="g", reference=Path("reference.py")),
        candidate=Candidate(task="g", name=name, source=Path("x.py")),
        mechanism="Does something.",
        expectation=GAMING,
    )
    return runner.Outcome(entry=entry, device="cpu", assessment=assessment)


def test_one_miss_or_one_false_alarm_is_unsound() -> None:
    assert runner.is_sound([outcome(Assessment.CAUGHT), outcome(Assessment.SKIPPED)])
    assert not runner.is_sound([outcome(Assessment.CAUGHT), outcome(Assessment.MISSED)])
    assert not runner.is_sound([outcome(Assessment.FALSE_ALARM)])


def test_where_nothing_can_be_run_nothing_is_proven() -> None:
    skipped = outcome(Assessment.SKIPPED)

    assert runner.exit_code([skipped, outcome(Assessment.CAUGHT)]) == 0
    assert runner.exit_code([skipped, outcome(Assessment.MISSED)]) == 1
    assert runner.exit_code([skipped, skipped]) == 3


def test_table_counts_by_kind() -> None:
    header, *rows = runner.table([outcome(Assessment.CAUGHT), outcome(Assessment.MISSED), outcome(Assessment.CAUGHT, "mem_y")])
    assert header == ("kind", "caught", "missed", "false alarm", "ok", "skipped")
    assert rows == [("memory", "1", "0", "0", "0", "0"), ("timing", "1", "1", "0", "0", "0")]


def test_surprise_names_what_is_right() -> None:
    (line,) = runner.surprises([outcome(Assessment.MISSED), outcome(Assessment.CAUGHT)])
    assert line.startswith("missed: g/time_x on cpu: found `skip`, right is `fail: values or fail: exploit:clock`.")
