"""Results that last, through the real command line: a full disk, a folder that goes or may not be written, a file edited by hand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kbench.store import Store

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
GOOD = "import torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x * 2 + 1\n"
# Its error text fills a few rows' worth of a small disk.
WORDY = GOOD.replace("return x * 2 + 1", "raise ValueError('w' * 1900)")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {"references/t.py": REFERENCE, "kbench.toml": "", "candidates/t/a_good.py": GOOD, "candidates/t/b_good.py": GOOD}
    files |= {f"candidates/t/c_wordy_{number}.py": WORDY for number in range(3)}
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "results").mkdir()
    return tmp_path


def begin(root: Path, *arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KBENCH_CACHE_DIR": str(root / "cache")}
    command = [*prefix, sys.executable, "-m", "kbench", *arguments]
    return subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kbench(root: Path, *arguments: str, prefix: tuple[str, ...] = ()) -> tuple[int, str, str]:
    process = begin(root, *arguments, prefix=prefix)
    told, said = process.communicate(timeout=DEADLINE_S)
    return process.returncode, told, said


def candidates_in(results: Path) -> list[str]:
    rows, problems = Store(results).read_verdicts()
    assert problems == []
    return [row.candidate for row in rows]


def needs_mounts() -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode:
        pytest.skip("only root may mount")


def mounting(commands: str) -> tuple[str, ...]:
    """Run what follows in a mount namespace of its own, after these commands, and copy the results out in the end."""
    script = f'{commands}; "$@"; code=$?; cp -r results copy; exit $code'
    return ("unshare", "-m", "sh", "-c", script, "sh")


def test_a_full_disk_ends_the_run_with_one_line_and_whole_rows(root: Path) -> None:
    """A real one, of 8 kB, with room for a few of five rows."""
    needs_mounts()
    code, told, said = kbench(
        root,
        "verify",
        "--device",
        "cpu",
        "--jobs",
        "1",
        "--json",
        prefix=mounting("mount -t tmpfs -o size=8k none results"),
    )

    assert code == 4, said
    assert "no space left on device" in said
    assert "free some space" in said
    kept = candidates_in(root / "copy")
    assert 0 < len(kept) < 5
    assert len(told.splitlines()) == len(kept)


def test_a_folder_that_may_not_be_written_is_told_before_anything_runs(root: Path) -> None:
    needs_mounts()
    code, told, said = kbench(root, "verify", "--device", "cpu", prefix=mounting("mount --bind results results && mount -o remount,ro,bind results"))

    assert (code, told) == (2, "")
    assert "read-only file system" in said


def test_a_folder_that_vanishes_is_made_again_and_no_row_is_lost(root: Path) -> None:
    process = begin(root, "verify", "--device", "cpu", "--jobs", "1")
    assert process.stdout is not None
    first = process.stdout.readline()
    (root / "results").rename(root / "elsewhere")

    told, said = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 1, said
    assert "pass  t/a_good" in first
    assert sorted(candidates_in(root / "elsewhere") + candidates_in(root / "results")) == sorted(path.stem for path in (root / "candidates/t").iterdir())
    assert "Traceback" not in said


def test_a_file_edited_by_hand_keeps_its_rows_and_each_bad_line_is_told_with_its_number(root: Path) -> None:
    """Edited, cut off in the middle of a row, and saved with other ends of lines; then a run adds its own."""
    assert kbench(root, "verify", "t/a_good", "t/b_good", "--device", "cpu", "--jobs", "1")[0] == 0
    path = root / "results/verdicts.csv"
    header, first, second = path.read_text().splitlines()
    path.write_bytes(f"{header}\r\n{first}\r\nmy own note, by hand\r\n{second}\r\n{first[:40]}".encode())

    assert kbench(root, "verify", "t/a_good", "--device", "cpu")[0] == 0
    code, page, _ = kbench(root, "report")

    rows, problems = Store(root / "results").read_verdicts()
    assert [row.candidate for row in rows] == ["a_good", "b_good", "a_good"]
    assert [problem.line for problem in problems] == [3, 5]
    assert path.read_bytes().startswith(f"{header}\r\n{first}\r\nmy own note, by hand\r\n{second}\r\n{first[:40]}\n".encode())
    assert code == 0
    for line in (3, 5):
        assert f"`verdicts.csv:{line}`" in page


def test_a_file_of_an_older_version_gets_the_new_columns_and_keeps_its_rows(root: Path) -> None:
    assert kbench(root, "verify", "t/a_good", "--device", "cpu")[0] == 0
    path = root / "results/verdicts.csv"
    header, row = path.read_text().splitlines()
    path.write_text("\n".join(line.rsplit(",", 2)[0] for line in (header, row)) + "\n")

    assert kbench(root, "verify", "t/b_good", "--device", "cpu")[0] == 0

    assert candidates_in(root / "results") == ["a_good", "b_good"]
    assert path.read_text().splitlines()[0] == header
