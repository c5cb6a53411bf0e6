"""New files are right as they are, and nothing is overwritten."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from kbench import discovery, scaffold
from kbench.errors import UsageError

REFERENCE = '''"""A task."""

from torch import nn

WIDTH = 3
# The sizes.
CASES = {"default": {}}


def helper(x):
    return x


class Model(nn.Module):
    def __init__(self):
        super(Model, self).__init__()
        self.other = helper(nn.Model)


def get_inputs():
    return []


def get_init_inputs():
    return [WIDTH]
'''


def test_a_candidate_takes_all_that_the_references_model_stands_on(tmp_path: Path) -> None:
    """Its imports, constants and helpers; not what only the judge needs."""
    (tmp_path / "references").mkdir()
    (tmp_path / "references/t.py").write_text(REFERENCE)
    scaffold.create(tmp_path, "t/c")
    text = (tmp_path / "candidates/t/c.py").read_text()

    assert "class ModelNew(nn.Module)" in text
    assert "super(ModelNew, self)" in text
    assert "helper(nn.Model)" in text
    assert [type(node).__name__ for node in ast.parse(text).body] == ["Expr", "ImportFrom", "Assign", "FunctionDef", "ClassDef"]
    assert "The sizes" not in text


def test_new_files_are_found_without_fault(tmp_path: Path) -> None:
    written = scaffold.create(tmp_path, "t/c")
    found = discovery.discover(tmp_path)

    assert [path.name for path in written] == ["t.py", "c.py"]
    assert not found.tasks[0].error
    assert not found.candidates[0].error


def test_what_is_there_is_never_overwritten(tmp_path: Path) -> None:
    scaffold.create(tmp_path, "t/c")
    for name in ("t", "t/c"):
        with pytest.raises(UsageError, match="is there already"):
            scaffold.create(tmp_path, name)


@pytest.mark.parametrize("name", ["", "../x", "t/", "t/c/d", "_t", "t/@compile", "a b"])
def test_a_name_that_could_leave_the_tree_or_hide_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        scaffold.create(tmp_path, name)

    assert not list(tmp_path.iterdir())


def test_a_reference_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "references").mkdir()
    (tmp_path / "references/t.py").write_text("def (\n")

    with pytest.raises(UsageError, match=r"t\.py:1"):
        scaffold.create(tmp_path, "t/c")
