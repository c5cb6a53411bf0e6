"""What a file says of itself is read from its text, whatever the text is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kbench.records import Case
from kbench.source import SourceFault, candidate_facts, cases_of, read_source

REFERENCE = "class Model: ...\ndef get_inputs(n=1): ...\ndef get_init_inputs(): ...\n"


def language(tmp_path: Path, text: str) -> str:
    (tmp_path / "c.py").write_text(text + "\nclass ModelNew: ...\n")
    return candidate_facts(read_source(tmp_path / "c.py")).language


def cases(tmp_path: Path, text: str) -> tuple[Case, ...]:
    (tmp_path / "r.py").write_text(text)
    return cases_of(read_source(tmp_path / "r.py"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch", "torch"),
        ('"""Like the `__global__` kernel."""', "torch"),
        ("torch.load('x', sources)", "torch"),
        ("load_inline('x', cpp_sources=[c])", "cpp"),
        ("load_inline('x', cpp_sources=[c], cuda_sources=[])", "cpp"),
        ("load_inline('x', [c], [k])", "cuda"),
        ("SOURCE = 'extern \"C\" __global__ void f() {}'", "cuda"),
        ("load(name='x', sources=['x.cpp'])", "cpp"),
        ("load(name='x', sources=['x.cu'])", "cuda"),
        ("try:\n    import triton.language as tl\nexcept ImportError: ...", "triton"),
    ],
)
def test_the_language_is_what_the_code_does_and_no_prose(tmp_path: Path, text: str, expected: str) -> None:
    assert language(tmp_path, text) == expected


def test_a_name_may_be_defined_in_any_block_that_runs_at_import(tmp_path: Path) -> None:
    text = "try:\n    import x\nexcept ImportError:\n    if True:\n        class ModelNew: ...\n"
    (tmp_path / "c.py").write_text(text)

    assert candidate_facts(read_source(tmp_path / "c.py")).language == "torch"


def test_a_name_inside_a_function_is_not_the_modules(tmp_path: Path) -> None:
    (tmp_path / "c.py").write_text("def f():\n    class ModelNew: ...\n")

    with pytest.raises(SourceFault, match="defines no `ModelNew`"):
        candidate_facts(read_source(tmp_path / "c.py"))


def test_each_statement_of_a_long_block_is_met_once(tmp_path: Path) -> None:
    """A walk that looks at the rest of the block for each statement would take hours for such a file."""
    lines = "".join(f"    a{number} = 1\n" for number in range(50_000))
    (tmp_path / "c.py").write_text(f"class ModelNew: ...\nif True:\n{lines}")

    assert candidate_facts(read_source(tmp_path / "c.py")).language == "torch"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("CASES = {'a': {'inputs': {'m': 1}}}", "get_inputs takes no `m`"),
        ("CASES = {'a': {'inputs': {'n': 1e999}}}", "made of numbers"),
        ("CASES = {'a': {'imputs': {}}}", "unknown key `imputs`"),
        ("CASES = dict(a={})", "must be a literal"),
        ("CASES = {}", "at least one case"),
        ("CASES = {'a b': {}}", "name of a case"),
        (f"CASES = {{0x{'f' * 5000}: {{}}}}", "name of a case is 'int'"),
        (f"CASES = {{'a': {{0x{'f' * 5000}: 1}}}}", "unknown key `int`"),
    ],
)
def test_a_bad_case_is_one_line_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SourceFault, match=words) as caught:
        cases(tmp_path, REFERENCE + text)

    assert str(caught.value).startswith("r.py:4: ")


def test_a_star_import_may_bring_what_a_reference_needs(tmp_path: Path) -> None:
    assert cases(tmp_path, "from base import *\nCASES = {'a': {'inputs': {'n': 1}}}\n") == (Case(name="a", inputs={"n": 1}),)


def test_what_is_no_file_or_no_python_is_said_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "gone.py").symlink_to("/nowhere")
    (tmp_path / "bytes.py").write_bytes(b"x = 1\n\xff")
    (tmp_path / "null.py").write_bytes(b"x = 1\n\0")
    (tmp_path / "deep.py").write_text("x = " + "(" * 3000 + ")" * 3000)

    assert "not a regular file" in read_source(tmp_path / "pipe.py").error
    assert "cannot be read" in read_source(tmp_path / "gone.py").error
    assert read_source(tmp_path / "bytes.py").error == "bytes.py:2: not UTF-8 (byte 0xff)"
    assert read_source(tmp_path / "null.py").error.startswith("null.py:")
    assert read_source(tmp_path / "deep.py").error.startswith("deep.py:1: ")
