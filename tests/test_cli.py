"""The command line as a user meets it: exit codes, one clear line for what is wrong, nothing lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

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
GOOD = REFERENCE.split("def get_inputs")[0].replace("Model(", "ModelNew(")
WRONG = GOOD.replace("+ 1", "+ 1.01")
FILES = {
    "references/t.py": REFERENCE,
    "references/broken.py": REFERENCE.replace("return [torch.randn(8, 8)]", "raise ValueError('no inputs today')"),
    "references/no_model.py": "x = 1\n",
    "candidates/t/good.py": GOOD,
    "candidates/t/wrong.py": WRONG,
    "candidates/t/no_model_new.py": "import torch\n",
    "candidates/t/syntax.py": "def (\n",
    "candidates/broken/same.py": GOOD,
    "candidates/no_model/same.py": GOOD,
    "candidates/orphans/alone.py": GOOD,
    "candidates/t/gpu_only.py": "DEVICES = ('cuda',)\n" + GOOD,
    "kbench.toml": "[time]\nbaselines = []\n",
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with one of each."""
    root = tmp_path_factory.mktemp("tree")
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def kbench(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kbench", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "KBENCH_CACHE_DIR": str(cwd / "cache"), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def objects(run: subprocess.CompletedProcess[str]) -> dict[str, dict[str, object]]:
    return {found["candidate"]: found for found in map(json.loads, run.stdout.splitlines())}


@pytest.fixture(scope="module")
def everything(tree: Path) -> subprocess.CompletedProcess[str]:
    """One run over all of it."""
    return kbench("verify", "--json", "--device", "cpu", "--seed", "5", cwd=tree)


@pytest.mark.parametrize(
    ("task", "candidate", "status", "reason", "words"),
    [
        ("t", "good", "pass", "", ""),
        ("t", "wrong", "fail", "values", "64 of 64 elements outside atol=0.0001"),
        ("t", "no_model_new", "fail", "load", "defines no `ModelNew`"),
        ("t", "syntax", "fail", "load", "syntax.py:1: syntax error"),
        ("t", "gpu_only", "skip", "", "needs CUDA"),
        ("broken", "same", "error", "reference", "no inputs today"),
        ("no_model", "same", "error", "reference", "defines no `Model`"),
        ("orphans", "alone", "error", "reference", "no reference references/orphans.py"),
    ],
)
def test_each_candidate_gets_its_own_verdict(
    everything: subprocess.CompletedProcess[str], task: str, candidate: str, status: str, reason: str, words: str
) -> None:
    found = next(v for v in map(json.loads, everything.stdout.splitlines()) if (v["task"], v["candidate"]) == (task, candidate))

    assert (found["status"], found["reason"]) == (status, reason)
    assert words in found["detail"]
    assert found["schema"] == 1
    assert isinstance(found["checks"], list)


def test_an_error_outranks_a_failure_and_a_failure_a_skip(everything: subprocess.CompletedProcess[str], tree: Path) -> None:
    assert everything.returncode == 4
    assert kbench("verify", "t/*", "--device", "cpu", cwd=tree).returncode == 1
    assert kbench("verify", "t/gpu_only", "--device", "cpu", cwd=tree).returncode == 3
    assert kbench("verify", "t/good", "t/gpu_only", "--device", "cpu", cwd=tree).returncode == 0
    assert kbench("verify", "t/good", "t/gpu_only", "--device", "cpu", "--strict", cwd=tree).returncode == 1


def test_what_is_not_verified_is_never_timed_and_never_averaged(tree: Path) -> None:
    run = kbench("time", "t/good", "t/wrong", "--device", "cpu", "--repeat", "4", "--energy", "--json", cwd=tree)
    found = objects(run)

    assert run.returncode == 1
    assert found["wrong"]["status"] == "fail"
    assert found["wrong"]["timings"] == []
    assert found["good"]["pairs"] == 4
    assert found["good"]["reference_s"] > 0
    assert found["good"]["notes"] == ["energy not measured: no meter is read on a CPU"]
    assert found["good"]["timings"][0]["wall_s"] > 0  # type: ignore[index]
    report = kbench("report", cwd=tree).stdout
    assert "`wrong`" in report.split("## Not accepted")[1]
    assert "`wrong`" not in report.split("## Not accepted")[0]


def test_a_list_of_files_that_cannot_be_used_is_a_list_all_the_same(tree: Path) -> None:
    listed = kbench("list", cwd=tree)

    assert listed.returncode == 0
    assert "syntax" in listed.stdout


def test_a_case_that_is_not_to_be_timed_is_timed_only_where_it_is_named(tmp_path: Path) -> None:
    cases = 'CASES = {"default": {"timed": False}}\n'
    for name, text in {"references/t.py": REFERENCE + cases, "candidates/t/good.py": GOOD, "kbench.toml": ""}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    run = kbench("time", "--device", "cpu", "--repeat", "4", "--trials", "1", "--json", cwd=tmp_path)

    assert run.returncode == 0, run.stderr
    (found,) = map(json.loads, run.stdout.splitlines())
    assert (found["status"], found["timings"]) == ("pass", [])
    assert any(warning.startswith("not timed: ") and "`--case default`" in warning for warning in found["warnings"])
    assert not (tmp_path / "results/timings.csv").exists()

    (tmp_path / "kbench.toml").write_text("[time]\nbaselines = []\n")
    named = kbench("time", "--case", "default", "--device", "cpu", "--repeat", "4", "--trials", "1", "--json", cwd=tmp_path)
    assert objects(named)["good"]["pairs"] == 4


def test_a_report_works_times_out_again_from_the_samples_of_several_processes(tmp_path: Path) -> None:
    for name in ("kbench.toml", "references/t.py", "candidates/t/good.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(FILES[name])
    run = kbench("time", "--device", "cpu", "--repeat", "21", "--processes", "2", "--json", cwd=tmp_path)
    (timing,) = objects(run)["good"]["timings"]  # type: ignore[misc]

    assert timing["pairs"] == 21
    assert len(timing["process_speedups"]) == 2
    (kept,) = (tmp_path / "results/samples").iterdir()
    assert json.loads(kept.read_text())["t/good/default"]["pairs_by_process"] == [11, 10]

    assert "Every time is as it was stored." in kbench("report", "--recompute", cwd=tmp_path).stdout
    assert "Worked out again" not in kbench("report", cwd=tmp_path).stdout

    rows = tmp_path / "results/timings.csv"
    rows.write_text(rows.read_text().replace(repr(timing["speedup"]), "9.5"))
    changed = kbench("report", "--recompute", cwd=tmp_path).stdout
    assert "t/good/default" in changed
    assert f"speedup 9.5 → {timing['speedup']}" in changed
    assert "9.50×" not in changed
    kept.unlink()
    assert "no samples; shown as stored" in kbench("report", "--recompute", cwd=tmp_path).stdout


def test_a_pair_of_files_needs_no_tree(tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(REFERENCE)
    (tmp_path / "c.py").write_text(GOOD)
    run = kbench("verify", "--reference", "r.py", "--candidate", "c.py", "--json", cwd=tmp_path)

    assert run.returncode == 0, run.stderr
    assert objects(run)["c"]["status"] == "pass"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("verify", "--trials", "0"), 2, "--trials"),
        (("verify", "--atol", "-1"), 2, "--atol"),
        (("verify", "--atol", "nan"), 2, "--atol"),
        (("verify", "--device", "cuda:x"), 2, "--device cuda:x"),
        (("verify", "--seed", "abc"), 2, "--seed abc"),
        (("verify", "--case", "nowhere"), 2, "no case `nowhere`"),
        (("verify", "--reference", "nothing.py", "--candidate", "candidates/t/good.py"), 2, "nothing.py"),
        (("verify", "--reference", "references/t.py"), 2, "--candidate"),
        (("verify", "t/god"), 3, "did you mean `t/good`"),
        (("verify", "zzz*"), 3, "zzz*"),
        (("verify", "--root", "/nowhere"), 2, "/nowhere"),
        (("time", "--repeat", "0"), 2, "--repeat"),
        (("new", "../x"), 2, "../x"),
        (("selftest", "nosuch/*"), 3, "nosuch/*"),
        (("selftest", "linear/robust_segfalt"), 3, "did you mean `linear/robust_segfault`"),
        (("selftest", "linear"), 3, "did you mean `linear/*`"),
        (("verify", "--no-such-option"), 2, "--no-such-option"),
        (("report", "--output", "/nowhere/x.md"), 2, "/nowhere/x.md"),
    ],
)
def test_bad_input_gets_one_clear_line_and_its_exit_code(tree: Path, arguments: tuple[str, ...], code: int, words: str) -> None:
    run = kbench(*arguments, cwd=tree)

    assert run.returncode == code, run.stderr
    assert words in run.stderr
    assert "Traceback" not in run.stderr
    assert [line.partition(":")[0] for line in run.stderr.splitlines()] in (["error"], ["error", "hint"])


def test_a_full_disk_is_no_bug_and_a_closed_pipe_no_failure(tree: Path) -> None:
    """Exit code 5 would ask for a report to the authors, and 1 would say that a candidate failed."""
    command = f"{sys.executable} -m kbench list t"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    for shell, code in ((f"{command} > /dev/full", 4), (f"{command} | true; exit ${{PIPESTATUS[0]}}", 130)):
        run = subprocess.run(["bash", "-c", shell], cwd=tree, env=environment, capture_output=True, text=True, check=False)
        assert run.returncode == code, run.stderr
        assert "Traceback" not in run.stderr


def test_an_unknown_setting_names_the_nearest_known_one(tmp_path: Path) -> None:
    (tmp_path / "kbench.toml").write_text("[verify]\natoll = 1e-4\n")
    run = kbench("verify", cwd=tmp_path)

    assert run.returncode == 2
    assert "unknown key `verify.atoll`" in run.stderr
    assert "did you mean `atol`" in run.stderr


def test_help_and_list_import_neither_torch_nor_pandas(tree: Path) -> None:
    program = (
        "import sys; sys.argv[1:] = {0!r}\nfrom kbench import cli\ntry:\n cli.main()\nexcept SystemExit: pass\n"
        "print(sorted(set(sys.modules) & {{'torch', 'pandas', 'numpy'}}))"
    )
    for arguments in (["--help"], ["list"]):
        run = subprocess.run(
            [sys.executable, "-c", program.format(arguments)],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout.splitlines()[-1] == "[]"


def test_new_files_verify_as_they_are_and_are_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "kbench.toml").write_text("")
    assert kbench("new", "mine/first", cwd=tmp_path).returncode == 0
    assert kbench("verify", "--device", "cpu", cwd=tmp_path).returncode == 0
    again = kbench("new", "mine/first", cwd=tmp_path)
    assert again.returncode == 2
    assert "is there already" in again.stderr


def test_an_interrupt_exits_130_and_leaves_no_process(tmp_path: Path) -> None:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    loop = GOOD.replace("return x * 2 + 1", "print('here', flush=True)\n        while True: pass")
    (tmp_path / "candidates/t/loop.py").write_text(loop)
    process = subprocess.Popen(
        [sys.executable, "-m", "kbench", "verify", "t/good", "t/loop", "--jobs", "1", "--device", "cpu"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "KBENCH_CACHE_DIR": str(tmp_path / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    # The first verdict is out; the second candidate never ends.
    assert "pass  t/good" in process.stdout.readline()
    children = _descendants(process.pid)
    assert children
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)

    assert process.returncode == 130
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists() and "zombie" not in _state(pid)]
    assert "good" in (tmp_path / "results/verdicts.csv").read_text()


def _descendants(pid: int) -> list[int]:
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        found += [int(child), *_descendants(int(child))]
    return found


def _state(pid: int) -> str:
    try:
        return next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("State"))
    except (OSError, StopIteration):
        return "zombie"
