"""What a candidate says of itself, through the real command line: text everywhere, and never more than text."""

from __future__ import annotations

import csv
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DEADLINE_S = 300
REFERENCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2 + 1

def get_inputs():
    return [torch.randn(8, 8)]

def get_init_inputs():
    return []
"""
# Formulas; markdown and HTML; colours, titles, links and clipboard of a terminal, in 7 and 8 bits; text that runs
# backwards; lines, NUL, half a surrogate pair; markup of the library that prints.
SAYS = [
    '=HYPERLINK("http://evil","click")',
    "+1+cmd|' /C calc'!A0",
    "@SUM(A1)",
    "| a | b |\n|---|---|\n# head\n[link](http://evil) <script>alert(1)</script> ![](http://evil/x.png) `code` **bold** ~~x~~",
    "\x1b[2J\x1b[31mred\x1b]0;title\x07\x1b]8;;http://evil\x1b\\link\x1b]52;c;aGk=\x07\x9b31m\x1bP+q\x1b\\",
    "\u202etxet sdrawkcab\u2066\u200f\u2028\u2029\ufeff",
    "line\r\nother\n\n\nfake,row,pass\x00\ud800\x7f\x85",
    "[bold red]markup[/] [link=http://evil]x[/link] :skull: [/]",
]
NAMES = ["=cmd()", "[red]x[", "a\nb", "\u202exe", "-rf", "a|b", "<b>", "\x1b[31m"]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hostile")
    (root / "references").mkdir()
    (root / "references/t.py").write_text(REFERENCE)
    folder = root / "candidates/t"
    folder.mkdir(parents=True)
    (root / "kbench.toml").touch()
    for number, text in enumerate(SAYS):
        printed = text.replace("\ud800", "")
        said = f"import torch\nprint({printed!r})\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        raise ValueError({text!r})\n"
        (folder / f"says_{number}.py").write_text(said)
    for name in NAMES:
        (folder / f"{name}.py").write_text("import torch\nclass ModelNew(torch.nn.Module):\n    pass\n")
    # An error before anything runs, with a name of its own in it.
    (folder / "breaks.py").write_text("def \x1b[31m(\n")
    return root


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "kbench", *arguments]


def environment(root: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "KBENCH_CACHE_DIR": str(root / "cache"), "PYTHONIOENCODING": "utf-8"}


@pytest.fixture(scope="module")
def as_json(tree: Path) -> list[dict[str, object]]:
    run = subprocess.run(
        command("verify", "--device", "cpu", "--json"), cwd=tree, env=environment(tree), capture_output=True, timeout=DEADLINE_S, check=False
    )
    assert run.returncode == 1, run.stderr
    assert run.stdout.isascii()
    lines = run.stdout.decode().splitlines()
    assert len(lines) == len(SAYS) + len(NAMES) + 1
    return [json.loads(line) for line in lines]


def test_json_has_one_object_a_candidate_and_all_that_was_said(as_json: list[dict[str, object]]) -> None:
    by_name = {str(found["candidate"]): found for found in as_json}

    assert '=HYPERLINK("http://evil","click")' in str(by_name["says_0"]["detail"])
    # Half of a surrogate pair has no encoding.
    assert json.dumps(as_json, ensure_ascii=False).encode()
    assert {found["status"] for found in as_json} == {"fail"}
    assert {found["reason"] for name, found in by_name.items() if name.startswith("says_")} == {"run"}


def test_the_csv_file_computes_nothing_and_keeps_its_rows(tree: Path, as_json: list[dict[str, object]]) -> None:
    text = (tree / "results/verdicts.csv").read_bytes().decode()
    rows = list(csv.reader(text.splitlines()))

    assert len(rows) == len(as_json) + 1
    assert {len(row) for row in rows} == {len(rows[0])}
    for cell in (cell for row in rows for cell in row):
        assert cell.isprintable()
        assert not re.match(r"[=+@\t\r]|-(?!\d)", cell), cell


def test_the_report_shows_text_and_nothing_else(tree: Path, as_json: list[dict[str, object]]) -> None:
    run = subprocess.run(command("report"), cwd=tree, env=environment(tree), capture_output=True, timeout=DEADLINE_S, check=True)
    page = run.stdout.decode()

    assert all(line.isprintable() for line in page.splitlines())
    # What stands in a code span is shown as it is.
    page = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", page)
    assert "says_0" not in page
    assert "<script" not in page
    assert not re.search(r"(?<!\\)\]\(http://evil", page)
    assert not re.search(r"(?<!\\)!\[", page)


def test_a_terminal_gets_no_control_code_but_our_own(tree: Path) -> None:
    """Through a real pseudo-terminal, with colours and the bar; what moves or names anything is not from us."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command("verify", "t/says_*", "--device", "cpu"),
        cwd=tree,
        env={**environment(tree), "TERM": "xterm-256color", "COLUMNS": "200"},
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:
                break
            if not data:
                break
            shown += data
        assert process.wait(DEADLINE_S) == 1
    os.close(ours)
    text = shown.decode()

    assert "says_4" in text
    # Colours, the cursor's visibility, and what redraws the bar.
    rest = re.sub(r"\x1b\[(?:[\d;]*m|\?25[lh]|2K|1A|\d*G)", "", text)
    assert not re.search(r"[\x00-\x06\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200f\u2028]", rest.replace("\x07", "BEL"))
    assert "BEL" not in rest.replace("\x07", "BEL")
    assert "\x1b[31mred" not in text
    assert "[bold red]markup[/]" in text
