"""Where the inputs of a case are drawn; the device without memory stands for a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kbench.records import Case
from kbench.worker.reference import Reference, ReferenceFault

META = torch.device("meta")


def inputs_of(folder: Path, get_inputs: str, device: torch.device = META) -> tuple[list[torch.Tensor], list[str]]:
    """The inputs of two calls, and the devices on which they were drawn, as the file itself saw them."""
    path = folder / "task.py"
    path.write_text(
        f"import random\nimport numpy\nimport torch\nclass Model(torch.nn.Module): pass\nseen = []\n"
        f"def get_inputs():\n    seen.append(torch.empty(0).device.type)\n    {get_inputs}\n"
        "def get_init_inputs(): return []\n"
    )
    reference = Reference(path, device, root_seed=1, label="task")
    first, second = reference.inputs(Case(), 0), reference.inputs(Case(), 0)
    return [*first, *second], reference.module.seen


def test_inputs_are_drawn_on_the_device_that_they_are_for(tmp_path: Path) -> None:
    given, seen = inputs_of(tmp_path, "return [torch.randn(4), torch.arange(3)]")

    assert seen == ["meta", "meta"]
    assert all(tensor.device == META for tensor in given)


@pytest.mark.parametrize(
    "get_inputs",
    [
        "return [torch.randn(4) + torch.from_numpy(numpy.ones(4))]",
        "return [torch.randn(4)[: int(torch.randint(1, 4, ()))]]",
    ],
)
def test_inputs_that_can_only_be_drawn_on_a_cpu_are_drawn_there_and_moved(tmp_path: Path, get_inputs: str) -> None:
    given, seen = inputs_of(tmp_path, get_inputs)

    assert seen == ["meta", "cpu", "cpu"]
    assert all(tensor.device == META for tensor in given)


def test_one_seed_draws_the_same_inputs_after_a_device_that_failed_halfway(tmp_path: Path) -> None:
    path = tmp_path / "task.py"
    path.write_text(
        "import torch\nclass Model(torch.nn.Module): pass\ndrawn = []\n"
        "def get_inputs():\n    drawn.append(torch.randn(4, device='cpu'))\n"
        "    if len(drawn) == 1: raise RuntimeError('not here')\n    return drawn[-1:]\n"
        "def get_init_inputs(): return []\n"
    )
    reference = Reference(path, META, root_seed=1, label="task")

    reference.inputs(Case(), 0)
    reference.inputs(Case(), 0)

    failed, *others = reference.module.drawn
    assert len(others) == 2
    assert all(torch.equal(failed, other) for other in others)


def test_inputs_that_can_be_drawn_nowhere_are_the_task_s_fault(tmp_path: Path) -> None:
    with pytest.raises(ReferenceFault, match="get_inputs raised ZeroDivisionError"):
        inputs_of(tmp_path, "return [torch.randn(4) / (1 // 0)]")
