"""Builds as a candidate gets them: through its own process, the engine and a builder, with a real compiler."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbench import discovery
from kbench.config import Config
from kbench.engines.job import Job, Options
from kbench.engines.once import judge
from kbench.records import Status, Verdict

REFERENCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x + 42

def get_inputs():
    return [torch.randn(8)]

def get_init_inputs():
    return []
"""

# A module by hand: the same machinery as pybind11's in a fraction of the time.
CANDIDATE = """
import glob, os
import torch
from torch.utils.cpp_extension import load_inline

MODULE = r'''
#include <Python.h>
static PyObject* answer(PyObject*, PyObject*) {{ return PyLong_FromLong(VALUE); }}
static PyMethodDef methods[] = {{{{"answer", answer, METH_NOARGS, ""}}, {{nullptr, nullptr, 0, nullptr}}}};
static PyModuleDef definition = {{PyModuleDef_HEAD_INIT, "by_hand", nullptr, -1, methods}};
PyMODINIT_FUNC PyInit_by_hand() {{ return PyModule_Create(&definition); }}
{more}
'''
FLAGS = ["-DVALUE=42"]
{before}
module = load_inline("by_hand", cpp_sources=MODULE, extra_cflags=FLAGS, no_implicit_headers=True)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x + module.answer()
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "reference.py").write_text(REFERENCE)
    return tmp_path


def judged(tree: Path, **candidates: dict[str, str]) -> dict[str, Verdict]:
    """Judge candidates made of CANDIDATE and what is given to fill it, in one run; the cache stays from run to run."""
    jobs = []
    for name, given in candidates.items():
        path = tree / f"{name}.py"
        path.write_text(CANDIDATE.format(**{"more": "", "before": "", **given}))
        found = discovery.discover_pair(tree / "reference.py", path)
        settings = Config(verify={"timeout_s": 60.0, "trials": 2}).settings_for("scenario", {})
        jobs.append(Job(task=found.tasks[0], candidate=found.candidates[0], device="cpu", settings=settings, cases=found.tasks[0].cases))

    results = judge(jobs, Options(jobs=1, seed=7, cache=tree / "cache", hidden=(tree,)))
    return {result.job.candidate.name: result.verdict for result in results}


def entries(tree: Path) -> set[str]:
    return {path.parent.name for path in tree.glob("cache/builds/*/entry.json")}


def told(verdict: Verdict) -> str:
    return f"{verdict.status} {verdict.reason}: {verdict.detail}\n{verdict.output_tail}"


def test_a_candidate_sees_nothing_of_the_cache(tree: Path) -> None:
    cache = str(tree / "cache")
    looks = f"""
for folder in ({cache!r}, {cache + "/builds"!r}):
    try:
        os.listdir(folder)
    except PermissionError:
        continue
    raise SystemExit("the cache can be read")
"""
    verdicts = judged(tree, honest={}, looks={"before": looks})
    assert all(verdict.status is Status.PASS for verdict in verdicts.values()), [told(verdict) for verdict in verdicts.values()]
    assert len(entries(tree)) == 1


def test_a_source_cannot_have_the_compiler_read_what_the_candidate_may_not(tree: Path) -> None:
    leak = f'asm(".section .rodata\\n.global leak\\nleak: .incbin \\"{tree / "reference.py"}\\"\\n.previous");'
    verdict = judged(tree, leaks={"more": leak})["leaks"]

    assert (verdict.status, verdict.reason) == (Status.FAIL, "build"), told(verdict)


def test_a_compiler_cannot_write_beside_its_own_build(tree: Path) -> None:
    """What is passed to a compiler is the candidate's to choose, so a compiler is as hostile as it is."""
    where = tree / "cache/builds/planted"
    verdict = judged(tree, plants={"before": f"FLAGS += ['-MMD', '-MF', {str(where)!r}]"})["plants"]

    assert not where.exists(), told(verdict)


def test_an_unchanged_candidate_is_built_in_no_later_run(tree: Path) -> None:
    first = judged(tree, honest={})["honest"]
    made = {path: path.stat().st_mtime_ns for path in tree.glob("cache/builds/*/by_hand.so")}
    again = judged(tree, honest={})["honest"]

    assert first.status is again.status is Status.PASS, told(again)
    assert len(made) == 1
    assert {path: path.stat().st_mtime_ns for path in tree.glob("cache/builds/*/by_hand.so")} == made
