"""Write a task or a candidate to start from; it verifies as it is."""

from __future__ import annotations

from pathlib import Path

from kbench.errors import UsageError
from kbench.source import NAME, NAME_RULE

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

_CANDIDATE = '''"""A kernel that is to give the reference's outputs, faster.

ModelNew has the constructor, the parameters and the forward of the reference's Model. Write it with
`torch.utils.cpp_extension.load_inline` (C++ or CUDA C++), with Triton, or in torch.
"""

import torch


class ModelNew(torch.nn.Module):
{body}
'''


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
    return [*written, _write(target, _CANDIDATE.format(body=_body(reference)))]


def _body(reference: Path) -> str:
    """The body of the reference's Model, so that the new candidate is right before it is fast."""
    lines = reference.read_text(encoding="utf-8").splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith(("class Model(", "class Model:"))]
    if not starts:
        return "    def forward(self, *inputs):\n        raise NotImplementedError"
    body = []
    for line in lines[starts[0] + 1 :]:
        if line and not line.startswith((" ", "\t", ")")):
            break
        body.append(line)
    return "\n".join(body).rstrip()


def _write(path: Path, text: str) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", hint="check the folder's rights") from None
    return path
