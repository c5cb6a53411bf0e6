"""The results files: what is written comes back, and nothing that happens to a file loses a row."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import errno
import fcntl
import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kbench import store as store_module
from kbench.errors import KbenchError, MachineError, UsageError
from kbench.records import TimingRow, VerdictRow
from kbench.reports import REPORTS
from kbench.store import CELL_LIMIT, Store, clean, place, visible

# How long an example takes says nothing on a busy machine.
UNHURRIED = settings(deadline=None, max_examples=100)
COLUMNS = [field.name for field in dataclasses.fields(TimingRow)]


def timing(**fields: object) -> TimingRow:
    known: dict[str, object] = {
        "run_id": "20261201T101010-abcdef",
        "started_at": "2026-12-01T10:10:10+00:00",
        "task": "cvae",
        "case": "default",
        "candidate": "fused",
        "status": "pass",
    }
    return TimingRow(**(known | fields))  # type: ignore[arg-type]


def verdict(**fields: object) -> VerdictRow:
    known: dict[str, object] = {
        "run_id": "20261201T101010-abcdef",
        "started_at": "2026-12-01T10:10:10+00:00",
        "task": "cvae",
        "candidate": "fused",
        "status": "fail",
    }
    return VerdictRow(**(known | fields))  # type: ignore[arg-type]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"


@pytest.fixture
def store(results: Path) -> Store:
    return Store(results)


def lines_of(path: Path) -> list[str]:
    return path.read_text().split("\n")


# What is written comes back.


def test_a_row_comes_back_as_it_was(store: Store) -> None:
    row = timing(
        verdict="faster",
        device="cuda:0",
        pairs=40,
        reference_s=0.1 + 0.2,
        candidate_s=1.2345678901234567e-06,
        speedup=float("inf"),
        seed=2**62 - 1,
        detail='said "no", twice',
    )
    store.append_timing(row)
    store.append_verdict(verdict(reason="values", max_abs_error=5e-324))

    assert store.read_timings() == ([row], [])
    assert store.read_verdicts() == ([verdict(reason="values", max_abs_error=5e-324)], [])


def test_the_header_names_the_fields_in_their_order(store: Store, results: Path) -> None:
    store.append_timing(timing())
    store.append_timing(timing())

    assert lines_of(results / "timings.csv")[0].split(",") == COLUMNS
    assert len(lines_of(results / "timings.csv")) == 4
    assert not (results / "verdicts.csv").exists()


def test_nothing_is_known_before_the_first_row(store: Store, results: Path) -> None:
    assert store.read_timings() == ([], [])
    assert not results.exists()


@UNHURRIED
@given(st.floats(allow_nan=False), st.integers())
def test_numbers_lose_no_digit(tmp_path_factory: pytest.TempPathFactory, number: float, whole: int) -> None:
    store = Store(tmp_path_factory.mktemp("numbers"))
    store.append_timing(timing(speedup=number, seed=whole))

    ((row,), problems) = store.read_timings()
    assert (row.speedup, row.seed, problems) == (number, whole, [])


TEXTS = st.text(max_size=60) | st.text(alphabet="'=+-@\"\\,;\t\r\n\0\x1b\u2028 1a", max_size=12)


@UNHURRIED
@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4))
@example([("'=1", "''@x")])
@example([("@compile", "@compile")])
@example([("\ud800", "\ufeff")])
def test_any_text_comes_back_clean_and_breaks_no_other_row(tmp_path_factory: pytest.TempPathFactory, texts: list[tuple[str, str]]) -> None:
    store = Store(tmp_path_factory.mktemp("texts"))
    for candidate, detail in texts:
        store.append_timing(timing(candidate=candidate or "x", detail=detail))

    rows, problems = store.read_timings()

    assert problems == []
    expected = [(clean(candidate or "x"), clean(detail)) for candidate, detail in texts]
    assert [(row.candidate, row.detail) for row in rows] == expected


@UNHURRIED
@given(TEXTS)
def test_no_cell_begins_like_a_formula(text: str) -> None:
    """Numbers may: they compute to themselves. Only a baseline's name may begin with an at sign."""
    cell = store_module._cell("detail", text)

    assert cell.isprintable()
    if cell[:1] in ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20"):
        assert cell[0] in "+-"
        float(cell)


def test_the_name_of_a_baseline_is_written_as_it_is(store: Store, results: Path) -> None:
    store.append_timing(timing(candidate="@compile", detail="@compile"))
    store.append_timing(timing(candidate="@SUM(A1:A9)"))
    store.append_timing(timing(candidate="@A1"))

    with (results / "timings.csv").open(newline="") as file:
        cells = list(csv.DictReader(file))
    assert [row["candidate"] for row in cells] == ["@compile", "'@SUM(A1:A9)", "'@A1"]
    assert cells[0]["detail"] == "'@compile"
    assert [row.candidate for row in store.read_timings()[0]] == ["@compile", "@SUM(A1:A9)", "@A1"]


def test_what_does_not_print_is_shown_as_an_escape() -> None:
    assert visible("a\nb\x1b[31m\u202e") == "a\\nb\\x1b[31m\\u202e"
    assert visible("µs → 2×") == "µs → 2×"


def test_a_long_text_is_cut() -> None:
    assert len(clean("x" * 10**6)) == CELL_LIMIT
    assert clean("x" * CELL_LIMIT) == "x" * CELL_LIMIT
    assert len(clean("\n" * CELL_LIMIT)) == CELL_LIMIT


# Files of other versions, and files mended by hand.


def test_an_older_file_gets_the_columns_that_came_since(store: Store, results: Path) -> None:
    results.mkdir()
    older = COLUMNS[:20]
    cells = ["r", "2026-11-01", "cvae", "default", "old, older", "pass", *[""] * 14]
    with (results / "timings.csv").open("w", newline="") as file:
        csv.writer(file).writerows([older, cells])
        file.write("cut,off\n")

    before, _ = store.read_timings()
    store.append_timing(timing())

    rows, problems = store.read_timings()
    assert lines_of(results / "timings.csv")[0].split(",") == COLUMNS
    assert [row.candidate for row in rows] == ["old, older", "fused"]
    assert before == rows[:1]
    assert rows[0].detail == ""
    assert [(problem.line, problem.message) for problem in problems] == [(3, f"2 cells where the header has {len(COLUMNS)}")]


def test_a_newer_file_keeps_its_columns(store: Store, results: Path) -> None:
    results.mkdir()
    header = [*COLUMNS, "energy_j"]
    row = ["r", "2027-11-01", "cvae", "default", "new", "pass", *[""] * (len(COLUMNS) - 6), "0.5"]
    (results / "timings.csv").write_text(",".join(header) + "\n" + ",".join(row) + "\n")

    store.append_timing(timing())

    assert lines_of(results / "timings.csv")[0].split(",") == header
    assert lines_of(results / "timings.csv")[1] == ",".join(row)
    assert lines_of(results / "timings.csv")[2].count(",") == len(COLUMNS)
    assert [row.candidate for row in store.read_timings()[0]] == ["new", "fused"]


@pytest.mark.parametrize(
    "content",
    [
        "name,time\nx,1\n",
        "\n",
        "run_id;started_at;task\n",
        "run_id,task,started_at\n",
        "no header",
        "\0\0\0\0",
    ],
)
def test_a_file_that_is_not_ours_is_refused_and_left_alone(store: Store, results: Path, content: str) -> None:
    results.mkdir()
    (results / "timings.csv").write_text(content)

    for refused in (store.check_writable, store.read_timings, lambda: store.append_timing(timing())):
        with pytest.raises(UsageError, match=r"timings\.csv: its first line is not this file's header") as caught:
            refused()
        assert "move the file away" in caught.value.hint
    assert (results / "timings.csv").read_text() == content


def test_a_header_cut_off_by_a_crash_is_written_again(store: Store, results: Path) -> None:
    results.mkdir()
    (results / "timings.csv").write_text(",".join(COLUMNS)[:40])

    assert store.read_timings() == ([], [])
    store.append_timing(timing())

    assert store.read_timings() == ([timing()], [])


def test_a_line_cut_off_by_a_crash_is_kept_and_reported(store: Store, results: Path) -> None:
    store.append_timing(timing(candidate="first"))
    path = results / "timings.csv"
    path.write_text(path.read_text() + "20261201,2026-12-01T1")

    store.append_timing(timing(candidate="second"))

    rows, problems = store.read_timings()
    assert [row.candidate for row in rows] == ["first", "second"]
    assert str(problems[0]) == f"{path}:3: 2 cells where the header has {len(COLUMNS)}"
    assert lines_of(path)[2] == "20261201,2026-12-01T1"


def test_a_file_saved_by_a_spreadsheet_is_read(store: Store, results: Path) -> None:
    """With a byte order mark, carriage returns, quotes everywhere, and empty lines at the end."""
    store.append_timing(timing(detail="a, b"))
    path = results / "timings.csv"
    with path.open(newline="") as file:
        cells = list(csv.reader(file))
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\r\n").writerows(cells)
        file.write("\r\n\r\n")

    store.append_timing(timing(candidate="next"))

    rows, problems = store.read_timings()
    assert problems == []
    assert [(row.candidate, row.detail) for row in rows] == [("fused", "a, b"), ("next", "")]


@pytest.mark.parametrize(
    ("column", "cell", "message"),
    [
        ("speedup", "2,5", f"{len(COLUMNS) + 1} cells"),
        ("speedup", "fast", "`speedup` cannot be `fast`"),
        ("pairs", "40.5", "`pairs` cannot be `40.5`"),
        ("status", "passed", "`status` cannot be `passed`"),
        ("verdict", "quicker", "`verdict` cannot be `quicker`"),
        ("task", "", "`task` cannot be ``"),
        ("detail", '"open', "not a line of CSV"),
    ],
)
def test_a_line_that_cannot_be_a_row_is_reported_with_its_number(store: Store, results: Path, column: str, cell: str, message: str) -> None:
    cells = ["r", "2026-12-01", "t", "", "c", "pass", *[""] * (len(COLUMNS) - 6)]
    cells[COLUMNS.index(column)] = cell
    store.append_timing(timing(candidate="before"))
    with (results / "timings.csv").open("a") as file:
        file.write(",".join(cells) + "\n")
    store.append_timing(timing(candidate="after"))

    rows, (problem,) = store.read_timings()

    assert [row.candidate for row in rows] == ["before", "after"]
    assert problem.line == 3
    assert message in problem.message


@UNHURRIED
@given(st.binary(max_size=80) | st.binary(max_size=80).map(lambda b: b.replace(b"\n", b"")))
@example(b'"')
@example(b"\xff\xfe")
@example(b"\xc3")
def test_any_bytes_behind_the_rows_leave_them_readable(tmp_path_factory: pytest.TempPathFactory, garbage: bytes) -> None:
    results = tmp_path_factory.mktemp("garbage")
    store = Store(results)
    store.append_timing(timing(candidate="before"))
    path = results / "timings.csv"
    path.write_bytes(path.read_bytes() + garbage)

    store.append_timing(timing(candidate="after"))

    rows, problems = store.read_timings()
    assert [row.candidate for row in rows] == ["before", "after"]
    assert len(problems) == sum(bool(line.removesuffix(b"\r")) for line in garbage.split(b"\n"))


@UNHURRIED
@given(st.binary(max_size=200))
def test_any_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    results = tmp_path_factory.mktemp("any")
    (results / "verdicts.csv").write_bytes(data)

    with contextlib.suppress(UsageError):
        assert Store(results).read_verdicts() == ([], [])


# When the disk or the folder fails.


@contextlib.contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size: a write is then cut short, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


@pytest.mark.parametrize("room", [0, 1, 50])
def test_a_full_disk_leaves_no_part_of_a_row(store: Store, results: Path, room: int) -> None:
    store.append_timing(timing())
    path = results / "timings.csv"
    before = path.read_bytes()

    with files_limited_to(len(before) + room), pytest.raises(MachineError) as caught:
        store.append_timing(timing(candidate="lost"))

    assert str(path) in caught.value.message
    assert "free some space" in caught.value.hint
    assert path.read_bytes() == before
    store.append_timing(timing(candidate="kept"))
    assert [row.candidate for row in store.read_timings()[0]] == ["fused", "kept"]


def test_a_full_disk_leaves_the_samples_of_before(store: Store, results: Path) -> None:
    store.save_samples("run", "cvae/fused/default", {"seconds": [1.0]})
    path = results / "samples" / "run.json"
    before = path.read_bytes()

    with files_limited_to(len(before) + 10), pytest.raises(MachineError):
        store.save_samples("run", "cvae/other/default", {"seconds": [1.0] * 100})

    assert path.read_bytes() == before


def test_a_full_disk_leaves_an_older_file_as_it_was(store: Store, results: Path) -> None:
    results.mkdir()
    path = results / "timings.csv"
    path.write_text("run_id,started_at\n")

    with files_limited_to(20), pytest.raises(MachineError):
        store.append_timing(timing())

    assert path.read_text() == "run_id,started_at\n"
    assert sorted(entry.name for entry in results.iterdir()) == [".lock", "timings.csv"]


def test_results_that_are_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("mine")

    with pytest.raises(UsageError, match=r"cannot use the results in .*results: file exists"):
        Store(tmp_path / "results").check_writable()
    assert (tmp_path / "results").read_text() == "mine"


@pytest.mark.parametrize("name", ["timings.csv", "samples", ".lock"])
def test_a_folder_where_a_file_belongs_is_refused(store: Store, results: Path, name: str) -> None:
    """And a file where the folder of samples belongs."""
    results.mkdir()
    if name == "samples":
        (results / name).touch()
    else:
        (results / name).mkdir()

    with pytest.raises(UsageError, match=re.escape(str(results))):
        store.check_writable()


@pytest.mark.parametrize(("number", "kind"), [(errno.EROFS, UsageError), (errno.EACCES, UsageError), (errno.EIO, MachineError)])
def test_a_folder_that_cannot_be_written_is_one_clear_line(store: Store, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[KbenchError]) -> None:
    """Made up, because these tests may run as root, whom no permission stops."""

    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)

    with pytest.raises(kind, match="cannot use the results in") as caught:
        store.append_timing(timing())
    assert "\n" not in caught.value.message


def test_a_folder_that_may_not_be_written_is_found_before_the_run(store: Store, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results.mkdir()
    monkeypatch.setattr(os, "access", lambda *_: False)

    with pytest.raises(UsageError, match="permission denied"):
        store.check_writable()


def test_a_vanished_folder_is_made_again(store: Store, results: Path) -> None:
    store.append_timing(timing())
    results.rename(results.with_name("elsewhere"))

    store.append_timing(timing(candidate="next"))

    assert [row.candidate for row in store.read_timings()[0]] == ["next"]


def test_a_vanished_project_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="no such file or directory"):
        Store(tmp_path / "gone" / "results").append_timing(timing())


def test_checking_writes_no_row(store: Store, results: Path) -> None:
    store.check_writable()

    assert not (results / "timings.csv").exists()
    assert store.read_verdicts() == ([], [])


# Several at once.

APPEND = """
import sys
from dataclasses import replace
from pathlib import Path
from kbench.records import TimingRow
from kbench.store import Store
store = Store(Path(sys.argv[1]))
for i in range(40):
    row = TimingRow(run_id=sys.argv[2], started_at="t", task="t", case="c", candidate=str(i), status="pass")
    store.append_timing(replace(row, detail=sys.argv[2] * 1500))
    store.save_samples("both", f"{sys.argv[2]}{i}", {"seconds": [0.5]})
"""


def test_two_processes_never_mix_their_rows(store: Store, results: Path) -> None:
    """The file is of an older version, so that one of the two replaces it while the other appends."""
    results.mkdir()
    (results / "timings.csv").write_text("run_id,started_at\n")
    processes = [
        subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, "-c", APPEND, str(results), name], cwd=Path(__file__).parents[1]
        )
        for name in "ab"
    ]
    assert [process.wait() for process in processes] == [0, 0]

    rows, problems = store.read_timings()

    assert problems == []
    for name in "ab":
        mine = [row for row in rows if row.run_id == name]
        assert [row.candidate for row in mine] == [str(i) for i in range(40)]
        assert {row.detail for row in mine} == {name * 1500}
    assert len(json.loads((results / "samples" / "both.json").read_text())) == 80


def test_a_lock_that_is_never_given_up_is_named(store: Store, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_LOCK_WAIT_S", 0.0)
    store.append_timing(timing())

    with (results / ".lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(MachineError, match="locked by another process"):
            store.append_timing(timing())


# Samples.


def test_samples_of_a_run_are_one_json_object(store: Store, results: Path) -> None:
    store.save_samples("run", "cvae/fused/default", {"seconds": [1e-6, 2.5e-6], "orders": ["rc"]})
    store.save_samples("run", 'odd "name"\n', {"clock_hz": [float("nan"), float("inf")]})

    assert json.loads((results / "samples" / "run.json").read_text()) == {
        "cvae/fused/default": {"seconds": [1e-6, 2.5e-6], "orders": ["rc"]},
        'odd "name"\n': {"clock_hz": [None, None]},
    }


def test_samples_that_another_program_changed_are_left_alone(store: Store, results: Path) -> None:
    store.save_samples("run", "one", {})
    path = results / "samples" / "run.json"
    path.write_text("{}")

    with pytest.raises(MachineError, match="another program changed it"):
        store.save_samples("run", "two", {})
    assert path.read_text() == "{}"


# The latest.


def test_of_a_candidate_on_a_device_the_newest_row_and_the_newest_pass_of_each_case_count(store: Store) -> None:
    rows = [
        timing(started_at="2026-12-02", seed=1),
        timing(started_at="2026-12-01", seed=2),
        timing(started_at="2026-12-02", seed=3),
        timing(started_at="2026-12-01", case="large", seed=4),
        timing(started_at="2026-12-01", device="cuda:0", gpu="H200", seed=5),
        timing(started_at="2027", device="cuda:1", gpu="H200", seed=6),
        timing(started_at="2028", status="fail", seed=7),
        timing(started_at="2026", status="fail", seed=8),
    ]
    for row in rows:
        store.append_timing(row)

    assert [row.seed for row in store.read_timings(newest=True)[0]] == [3, 4, 6, 7]
    assert store.read_timings()[0] == rows


def test_a_verdict_replaces_one_that_named_another_case(store: Store) -> None:
    rows = [verdict(case="large"), verdict(case="", status="pass")]
    for row in rows:
        store.append_verdict(row)

    assert store.read_verdicts(newest=True) == (rows[1:], [])


def test_a_line_that_cannot_be_a_row_is_reported_and_replaces_none(store: Store, results: Path) -> None:
    for seed in (1, 2):
        store.append_timing(timing(seed=seed, repeat=7))
    path = results / "timings.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[2], lines[1].replace(",7,", ",seven,")]) + "\n")
    rows, problems = store.read_timings(newest=True)

    assert [row.seed for row in rows] == [2]
    assert [str(problem).rpartition("/")[2] for problem in problems] == ["timings.csv:3: `repeat` cannot be `seven`"]


def test_a_page_is_the_same_of_all_rows_and_of_the_newest(store: Store) -> None:
    for number in range(40):
        status = "fail" if number % 7 == 3 else "pass"
        store.append_timing(timing(candidate=f"c{number % 3}", case=f"k{number % 2}", status=status, started_at=f"2026-12-{number % 9:02}"))
        store.append_verdict(verdict(candidate=f"c{number % 4}", status=status, started_at=f"2026-12-{number % 5:02}"))
    pages = [REPORTS["markdown"](store.read_timings(newest=newest)[0], store.read_verdicts(newest=newest)[0], []) for newest in (False, True)]

    assert pages[0] == pages[1]


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"device": "cpu", "cpu": "EPYC 9654"}, "EPYC 9654"),
        ({"device": "cpu", "gpu": "NVIDIA H200"}, "cpu"),
        ({"device": "cuda:3", "gpu": "NVIDIA H200", "cpu": "EPYC 9654"}, "NVIDIA H200"),
        ({"device": "cuda"}, "cuda"),
        ({"device": "cuda-on-cpu", "cpu": "EPYC 9654"}, "cuda-on-cpu"),
    ],
)
def test_a_device_is_named_by_its_model(fields: dict[str, str], name: str) -> None:
    assert place(timing(**fields)) == name
