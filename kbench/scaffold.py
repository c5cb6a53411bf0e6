"""Write a task or a candidate to start from; it verifies as it is."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

from kbench.errors import UsageError
from kbench.source import NAME, NAME_RULE, read_source

_REFERENCE = '''"""What the kernel is to compute, in plain torch."""

import torch

# Other sizes to judge by: keyword arguments for the two functions below. A literal: it is read, not run.
CASES = {
    "default": {},
    "odd": {"inputs": {"batch": 33}, "timed": False},
}


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(width))

    def forward(self, x):
        return torch.relu(x * self.scale)


def get_inputs(batch=256, width=512):
    return [torch.randn(batch, width)]


def get_init_inputs(width=512):
    return [width]
'''

_CANDIDATE_DOCSTRING = '''"""A kernel that is to give the reference's outputs, faster.

ModelNew has the constructor, the parameters and the forward of the reference's Model; it begins as a copy,
which is right before it is fast. Write it with `torch.utils.cpp_extension.load_inline` (C++ or CUDA C++), with
Triton, or in torch.
"""
'''
# What only the judge needs of a reference.
_NOT_COPIED = frozenset({"get_inputs", "get_init_inputs", "CASES"})


def create(root: Path, name: str) -> list[Path]:
    """Write the files that `TASK` or `TASK/CANDIDATE` lacks; what was written.

    Raises:
        UsageError: the name is none, or what it names is there already.
    """
    task, slash, candidate = name.partition("/")
    for part in (task, candidate) if slash else (task,):
        if not NAME.fullmatch(part):
            raise UsageError(f"`{name}` is no TASK[/CANDIDATE]", hint=f"a name may have {NAME_RULE}")
    reference = root / "references" / f"{task}.py"
    if not slash:
        if reference.exists():
            raise UsageError(f"{reference} is there already", hint=f"`kbench new {task}/NAME` makes a candidate for it")
        return [_write(reference, _REFERENCE)]
    target = root / "candidates" / task / f"{candidate}.py"
    if target.exists():
        raise UsageError(f"{target} is there already", hint="choose another name")
    written = [] if reference.exists() else [_write(reference, _REFERENCE)]
    return [*written, _write(target, _candidate_of(reference))]


def _candidate_of(reference: Path) -> str:
    """Copy a reference without what only the judge needs, its Model renamed to ModelNew."""
    source = read_source(reference)
    if source.error or not any(isinstance(node, ast.ClassDef) and node.name == "Model" for node in source.tree.body):
        problem = source.error or f"{source.file}: no class `Model` at its top"
        raise UsageError(f"no candidate can start from {problem}", hint="mend the reference first")
    text = reference.read_text(encoding="utf-8-sig")
    dropped = _lines_without_use(source.tree, text.splitlines())
    kept = [line for number, line in enumerate(_renamed(text), start=1) if number not in dropped]
    body = re.sub(r"\n{3,}", "\n\n\n", "\n".join(kept)).strip("\n")
    return f"{_CANDIDATE_DOCSTRING}\n{body}\n"


def _renamed(text: str) -> list[str]:
    lines = text.splitlines()
    before = ""
    places = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        # An attribute of that name is somebody else's.
        if token.type == tokenize.NAME and token.string == "Model" and before != ".":
            places.append(token.end)
        before = token.string
    # From the right, so that the columns still to come hold.
    for line, column in reversed(places):
        lines[line - 1] = f"{lines[line - 1][:column]}New{lines[line - 1][column:]}"
    return lines


def _lines_without_use(tree: ast.Module, lines: list[str]) -> set[int]:
    """Number the lines of the docstring and of what `_NOT_COPIED` names, with the comments right above."""
    dropped: set[int] = set()
    for index, node in enumerate(tree.body):
        if not (_defines(node) & _NOT_COPIED or (index == 0 and ast.get_docstring(tree) is not None)):
            continue
        first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
        while first > 1 and lines[first - 2].startswith("#"):
            first -= 1
        dropped.update(range(first, (node.end_lineno or first) + 1))
    return dropped


def _defines(node: ast.stmt) -> set[str]:
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    return {getattr(node, "name", ""), *(target.id for target in targets if isinstance(target, ast.Name))}


def _write(path: Path, text: str) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", hint="check the folder's rights") from None
    return path
