"""The page of results: what it shows and leaves out, and that no row can write anything but text on it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from kbench.records import TimingRow, VerdictRow
from kbench.reports import REPORTS
from kbench.reports.markdown import render
from kbench.store import Problem

H200 = {
    "device": "cuda:0",
    "gpu": "NVIDIA H200",
    "torch": "2.11.0",
    "cuda": "13.0",
    "driver": "580.65",
    "host": "h1",
}
CPU = {"device": "cpu", "cpu": "EPYC 9654", "torch": "2.11.0", "python": "3.12.3", "host": "h1"}


def timing(task: str, candidate: str, **fields: object) -> TimingRow:
    known: dict[str, object] = {
        "run_id": "r1",
        "started_at": "2026-12-01T10:10:59+00:00",
        "case": "default",
        "status": "pass",
        "verdict": "faster",
        "reference_sha256": "ref",
        "candidate_sha256": "one",
    }
    return TimingRow(task=task, candidate=candidate, **(known | fields))  # type: ignore[arg-type]


def timed(task: str, candidate: str, speedup: float, **fields: object) -> TimingRow:
    known: dict[str, object] = {
        "reference_s": 457e-6,
        "candidate_s": 457e-6 / speedup,
        "speedup": speedup,
        "speedup_low": speedup * 0.99,
        "speedup_high": speedup * 1.01,
    }
    return timing(task, candidate, **(known | fields))


def verdict(task: str, candidate: str, status: str, **fields: object) -> VerdictRow:
    known: dict[str, object] = {
        "run_id": "r1",
        "started_at": "2026-12-01T10:10:59+00:00",
        "candidate_sha256": "one",
    }
    return VerdictRow(task=task, candidate=candidate, status=status, **(known | fields))  # type: ignore[arg-type]


def test_the_whole_page() -> None:
    timings = [
        timed("cvae", "@compile", 2.0, **H200),
        timed("cvae", "fused", 8.0, **H200, reference_wall_s=402e-6, candidate_wall_s=48e-6, flags="host_bound"),
        timed("mixture", "document", 2.0, **H200, verdict="unresolved", flags="few_pairs"),
        timed("mixture", "document", 4.0, **H200, case="large"),
        timed("cvae", "cpp", 1.2, **CPU, started_at="2026-11-30T09:00:00+00:00"),
        timed("cvae", "torch", 1.0, **CPU | {"torch": "2.10.0"}, verdict="same"),
    ]
    verdicts = [
        verdict("cvae", "fused", "pass", **H200),
        verdict(
            "cvae",
            "zeros",
            "fail",
            **CPU,
            reason="values",
            case="default",
            detail="output[0]: 3 of 4 | wrong",
        ),
        verdict("cvae", "sieve", "pass", device="cuda-on-cpu", cases_passed=3, cases_total=3),
        verdict("mixture", "triton", "skip", device="cuda", detail="needs CUDA: this machine has no GPU"),
    ]
    problems = [Problem(file=Path("/x/results/timings.csv"), line=7, message="`pairs` cannot be `|`")]

    assert render(timings, verdicts, problems) == (Path(__file__).with_name("page.md")).read_text()


def test_the_page_is_the_same_however_it_is_asked_for() -> None:
    assert REPORTS["markdown"]([], [], []) == render([], [], [])


def test_an_empty_page_says_what_to_do() -> None:
    assert render([], [], []) == "# Results\n\nThere are no results yet; `kbench time` makes some.\n"


def cells_of(page: str, candidate: str) -> list[list[str]]:
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in page.splitlines()]
    return [row for row in rows if f"`{candidate}`" in row]


def test_the_latest_row_of_a_candidate_counts() -> None:
    timings = [
        timed("cvae", "fused", 3.0, started_at="2026-12-02T00:00:00+00:00"),
        timed("cvae", "fused", 2.0, started_at="2026-12-01T00:00:00+00:00"),
    ]

    assert [row[6] for row in cells_of(render(timings, [], []), "fused")] == ["3.00×"]
    assert [row[6] for row in cells_of(render(timings, [], [], all_rows=True), "fused")] == ["3.00×", "2.00×"]


def test_what_only_a_gpu_has_stands_where_a_row_has_it() -> None:
    seen = {"reference_graph_s": 90e-6, "candidate_graph_s": 30e-6, "reference_kernels": 9, "candidate_kernels": 1, "sol_s": 20e-6, "sol_bound": "memory"}
    page = render([timed("cvae", "fused", 8.0, **H200, **seen), timed("cvae", "plain", 2.0, **H200)], [], [])
    heads = next(line for line in page.splitlines() if line.startswith("| Task"))

    assert "| In a graph | Kernels | Speed of light |" in heads
    assert cells_of(page, "fused")[0][-5:-2] == ["3.00×", "9 → 1", "35 % (memory)"]
    assert cells_of(page, "plain")[0][-5:-2] == ["", "", ""]
    assert "Kernels" not in render([timed("cvae", "plain", 2.0, **CPU)], [], [])


def test_every_baseline_that_was_timed_has_a_column() -> None:
    rows = [timed("cvae", "@compile", 2.0), timed("cvae", "@cudagraph", 4.0), timed("cvae", "fused", 8.0)]
    page = render(rows, [], [])

    assert "| Against `@compile` | Against `@cudagraph` |" in page
    assert cells_of(page, "fused")[0][8:10] == ["4.00×", "2.00×"]
    assert cells_of(page, "@cudagraph")[0][8:10] == ["2.00×", ""]


def test_a_gain_that_a_graph_takes_away_is_said() -> None:
    page = render([timed("cvae", "fused", 2.0, **H200, reference_graph_s=10e-6, candidate_graph_s=10e-6)], [], [])

    assert "gain is launch overhead" in page


def test_a_candidate_that_fails_now_loses_its_time() -> None:
    """A wrong kernel has no speed, however fast it was when it was right."""
    timings = [timed("cvae", "fused", 3.0), timed("cvae", "other", 3.0)]
    later = {"run_id": "r2", "started_at": "2026-12-02T00:00:00+00:00"}

    page = render(timings, [verdict("cvae", "fused", "fail", reason="values", **later)], [])

    assert [row[3:5] for row in cells_of(page, "fused")] == [["fail", "`values`"]]
    assert [row[6] for row in cells_of(page, "other")] == ["3.00×"]


def test_a_candidate_that_was_mended_is_no_failure_any_more() -> None:
    later = {"run_id": "r2", "started_at": "2026-12-02T00:00:00+00:00"}
    verdicts = [verdict("cvae", "fused", "fail"), verdict("cvae", "fused", "pass", **later)]

    page = render([timed("cvae", "fused", 3.0, **later)], verdicts, [])

    assert "Not accepted" not in page
    assert "Not accepted" in render([], verdicts, [], all_rows=True)


def test_a_failure_on_one_device_says_nothing_of_another() -> None:
    timings = [timed("cvae", "fused", 3.0, **H200)]
    later = {"run_id": "r2", "started_at": "2026-12-02T00:00:00+00:00"}

    page = render(timings, [verdict("cvae", "fused", "fail", **CPU, **later)], [])

    assert len(cells_of(page, "fused")) == 2


def test_a_failed_baseline_is_told_and_a_failed_candidate_only_once() -> None:
    timings = [
        timing("cvae", "@compile", status="error", verdict="", reason="reference"),
        timing("cvae", "fused", status="fail", verdict="", reason="values"),
    ]
    verdicts = [verdict("cvae", "fused", "fail", reason="values")]

    for page in (render(timings, verdicts, []), render(timings, verdicts, [], all_rows=True)):
        assert len(cells_of(page, "@compile")) == 1
        assert len(cells_of(page, "fused")) == 1


def test_a_time_of_another_source_than_the_verified_one_is_marked() -> None:
    later = {"run_id": "r2", "started_at": "2026-12-02T00:00:00+00:00", "candidate_sha256": "two"}

    page = render([timed("cvae", "fused", 3.0)], [verdict("cvae", "fused", "pass", **later)], [])

    assert "`changed_since`" in page


def test_a_compiled_reference_of_another_source_is_no_yardstick() -> None:
    timings = [
        timed("cvae", "@compile", 2.0, reference_sha256="older"),
        timed("cvae", "fused", 4.0),
        timed("other", "@compile", 2.0),
        timed("other", "fused", 5.0),
    ]

    assert [row[8] for row in cells_of(render(timings, [], []), "fused")] == ["", "2.50×"]


def test_a_mean_needs_several_problems_and_holds_no_baseline() -> None:
    several = [
        timed("a", "x", 2.0),
        timed("b", "x", 4.0),
        timed("c", "x", 8.0),
        timed("c", "@compile", 100.0),
    ]

    assert "Geometric mean of 3 speed-ups: 4.00×\n" in render(several, [], [])
    assert "Geometric mean" not in render(several[:1] * 3, [], [])
    assert "Geometric mean" not in render([timed("a", name, 2.0) for name in "xyz"], [], [])
    assert "Geometric mean" not in render(several, [], [], all_rows=True)


def test_figures_that_no_clock_gave_are_shown_and_not_averaged() -> None:
    rows = [timed("a", "x", 2.0), timed("b", "x", 2.0), timed("c", "x", 2.0)]
    broken = [
        timing("d", "x", speedup=float("nan"), reference_s=-1.0),
        timing("e", "x", speedup=0.0, candidate_s=0.0),
        timing("f", "x", speedup=float("inf")),
        timing("g", "x"),
    ]

    assert "Geometric mean of 3 speed-ups: 2.00×" in render(rows + broken, [], [])


def test_many_problems_are_counted() -> None:
    problems = [Problem(file=Path("timings.csv"), line=i, message="cut off") for i in range(30)]

    page = render([], [], problems)

    assert page.count("- `timings.csv:") == 20
    assert page.endswith("- and 10 more\n")


HOSTILE = [
    "a | b",
    "a \\| b",
    "a \\\\| b",
    "|",
    "`",
    "`` ` ``",
    "``` x",
    "\\`",
    "<script>alert(1)</script>",
    "<!--",
    "[a](javascript:alert(1))",
    "![a](http://x/y.png)",
    "https://example.com www.example.com @someone #1",
    "a\n\n# b",
    "a\r\n| b |",
    "\x1b[31m\x07",
    "&lt;b&gt;",
    "**b** _i_ ~~s~~",
    "\u202e",
    "=1+1",
    " ",
]
TEXTS = st.sampled_from(HOSTILE) | st.text(alphabet="|`\\<>[]()!*_#&\n\r \x1b-ab", max_size=14) | st.text(max_size=14)
TAGS = {"h1", "h2", "p", "table", "thead", "tbody", "tr", "th", "td", "code", "ul", "ol", "li"}


@settings(deadline=None, max_examples=200)
@given(TEXTS, TEXTS)
@example("a \\| b", "`|`")
def test_no_text_of_a_row_is_more_than_text(one: str, other: str) -> None:
    """Rendered by another program, the page has our tags, our number of cells, and no others."""
    names = {"gpu": other, "torch": other, "host": one, "flags": other, "device": "cuda"}
    page = render(
        [timed(one or "t", f"c{other}", 2.0, **names, case=one, started_at=other)],
        [verdict(f"z{other}", one or "c", "fail", device=one, reason=other, detail=other, case=one)],
        [Problem(file=Path("timings.csv"), line=2, message=one)],
    )

    html = MarkdownIt("gfm-like", {"linkify": False, "html": True}).render(page)

    assert all(character.isprintable() for character in page.replace("\n", ""))
    assert set(re.findall(r"<\s*/?([^\s>]*)", html)) <= TAGS
    tables = re.findall(r"<table>.*?</table>", html, re.DOTALL)
    assert [(table.count("<th"), table.count("<td"), table.count("<tr")) for table in tables] == [
        (12, 11, 2),
        (9, 8, 2),
    ]


@pytest.mark.parametrize("text", [text for text in HOSTILE if text.isprintable() and text.strip() and "\\" not in text])
def test_hostile_text_is_shown_as_it_is(text: str) -> None:
    page = render([], [verdict("cvae", "c", "fail", detail=text)], [])

    html = MarkdownIt("gfm-like", {"linkify": False}).render(page)

    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert f"<td><code>{escaped.strip()}</code></td>" in html.replace("&quot;", '"')
