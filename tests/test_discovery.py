"""Tasks and candidates are found by reading files, never by running them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbench import discovery
from kbench.errors import NothingSelectedError, UsageError
from kbench.source import read_source as real

REFERENCE = "import torch\nclass Model(torch.nn.Module): ...\ndef get_inputs(n=1): ...\ndef get_init_inputs(): ...\n"
CANDIDATE = "import torch\nraise SystemExit('this must not run')\nclass ModelNew(torch.nn.Module): ...\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "kbench.toml").write_text("")
    write(tmp_path / "references/a.py", REFERENCE + "CASES = {'default': {}, 'big': {'inputs': {'n': 3}, 'devices': ['cuda'], 'timed': False}}\n")
    write(tmp_path / "references/b.py", REFERENCE)
    for name in ("a/one", "a/two", "b/one"):
        write(tmp_path / f"candidates/{name}.py", CANDIDATE)
    write(tmp_path / "candidates/a/_draft.py", CANDIDATE)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def labels(tree: Path, *selectors: str) -> list[str]:
    return [candidate.label for candidate in discovery.discover(tree, selectors).candidates]


def test_selectors_are_tasks_candidates_globs_and_files(tree: Path) -> None:
    assert labels(tree) == ["a/one", "a/two", "b/one"]
    assert labels(tree, "a") == ["a/one", "a/two"]
    assert labels(tree, "b/one", "a/two") == ["a/two", "b/one"]
    assert labels(tree, "*/one") == ["a/one", "b/one"]
    assert labels(tree, str(tree / "candidates/b/one.py")) == ["b/one"]


def test_what_names_nothing_is_said_with_the_nearest_name(tree: Path) -> None:
    with pytest.raises(NothingSelectedError) as caught:
        labels(tree, "a/onee")

    assert "a/one" in caught.value.hint


def test_a_file_outside_of_the_tree_needs_its_reference(tree: Path, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere.py", CANDIDATE)

    with pytest.raises(UsageError, match="lies outside"):
        labels(tree, str(tmp_path / "elsewhere.py"))


def test_cases_are_read_from_a_literal(tree: Path) -> None:
    task = discovery.discover(tree, ["a"]).tasks[0]

    assert [case.name for case in task.cases] == ["default", "big"]
    assert task.cases[1].inputs == {"n": 3}
    assert task.cases[1].devices == ("cuda",)
    assert not task.cases[1].timed


@pytest.mark.parametrize(
    ("text", "language", "devices"),
    [
        ("", "torch", ("cpu", "cuda")),
        ("import triton\n", "triton", ("cuda",)),
        ("from torch.utils.cpp_extension import load_inline\nx = load_inline('n', 'int f();')\n", "cpp", ("cpu",)),
        ("from torch.utils.cpp_extension import load_inline\nx = load_inline('n', '', cuda_sources='k')\n", "cuda", ("cuda",)),
        ("DEVICES = ('cpu',)\nimport triton\n", "triton", ("cpu",)),
    ],
)
def test_the_source_decides_where_a_candidate_runs(tree: Path, text: str, language: str, devices: tuple[str, ...]) -> None:
    write(tree / "candidates/a/one.py", text + CANDIDATE)
    candidate = discovery.discover(tree, ["a/one"]).candidates[0]

    assert (candidate.language, candidate.devices, candidate.error) == (language, devices, "")


def test_the_tree_is_the_nearest_folder_with_a_settings_file(tree: Path) -> None:
    assert discovery.find_root(tree / "candidates/a") == tree


def test_folders_and_references_are_paths_of_a_task(tree: Path) -> None:
    assert labels(tree, str(tree / "candidates/a")) == ["a/one", "a/two"]
    assert labels(tree, str(tree / "references/b.py")) == ["b/one"]


def test_a_task_without_candidates_is_found(tree: Path) -> None:
    write(tree / "references/new.py", REFERENCE)

    assert [task.name for task in discovery.discover(tree, ["new"]).tasks] == ["new"]
    assert "new" in [task.name for task in discovery.discover(tree).tasks]


def test_only_what_is_selected_is_read(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand candidates of other tasks cost nothing."""
    read = []
    monkeypatch.setattr(discovery, "read_source", lambda path: read.append(path.name) or real(path))
    labels(tree, "a/two")

    assert sorted(read) == ["a.py", "two.py"]


def test_no_name_carries_control_codes(tree: Path) -> None:
    write(tree / "references/\x1b[31mred.py", REFERENCE)
    write(tree / "candidates/a/\x1b[2J.py", CANDIDATE)
    found = discovery.discover(tree)
    names = [*(task.name for task in found.tasks), *(candidate.name for candidate in found.candidates)]

    assert all(name.isprintable() for name in names)
    assert sum("the name may hold" in one.error for one in (*found.tasks, *found.candidates)) == 2


def test_two_names_that_look_alike_are_both_there(tree: Path) -> None:
    for name in ("x|y", "x\ny"):
        write(tree / f"candidates/a/{name}.py", CANDIDATE)

    assert labels(tree, "a") == ["a/one", "a/two", "a/x?y", "a/x?y?"]
