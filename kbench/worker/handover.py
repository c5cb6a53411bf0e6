"""Calls for a process that no judge talks to: inputs as bytes in files, beside a message that says how to read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from kbench.worker import tensors
from kbench.worker.reference import CaseReference

# Under a tool that watches every access a large case takes minutes; the first case runs whatever its size.
SMALL_BYTES = 4 * 2**20
_CALLS = 2


def write_calls(references: list[CaseReference], folder: Path) -> list[dict[str, Any]]:
    """Write the inputs of two trials of each case, but for large ones after the first; what to call, as data."""
    cases = []
    for index, reference in enumerate(references):
        calls = []
        for trial in reference.trials():
            if trial.index >= _CALLS:
                break
            layout = tensors.Layout()
            spec = tensors.describe(trial.args, place=layout.place, trusted=True)
            if index and layout.end_bytes > SMALL_BYTES:
                break
            content = torch.zeros(layout.end_bytes, dtype=torch.uint8)
            tensors.write_tree(content, spec, trial.args)
            path = folder / f"{index}-{trial.index}.bin"
            path.write_bytes(content.numpy().tobytes())
            calls.append({"file": str(path), "args": spec, "seed": trial.seed})
        if calls:
            cases.append({"name": reference.case.name, "init": reference.init_spec, "seed": reference.init_seed, "calls": calls})
    return cases
