"""A task is judged, too: what it could not tell from the right answer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from kbench.records import Case
from kbench.worker.evidence import Tolerance
from kbench.worker.reference import CaseReference, Reference, ReferenceFault


def case_of(tmp_path: Path, forward: str, inputs: str = "torch.randn(8, 16)", arguments: str = "x", *, beyond_inputs: bool = True) -> CaseReference:
    path = tmp_path / "task.py"
    path.write_text(
        "import torch\n"
        "class Model(torch.nn.Module):\n"
        f"    def forward(self, {arguments}):\n        return {forward}\n"
        f"def get_inputs():\n    return [{inputs}]\n"
        "def get_init_inputs():\n    return []\n"
    )
    reference = Reference(path, torch.device("cpu"), root_seed=11, label="task")
    tolerance = Tolerance(by_dtype={}, default=(1e-4, 1e-4))
    return CaseReference(reference, Case(), trials=3, tolerance=tolerance, beyond_inputs=beyond_inputs)


def names(case: CaseReference) -> list[str]:
    return [weakness.name for weakness in case.weaknesses]


def test_a_sound_task_has_no_weakness(tmp_path: Path) -> None:
    assert names(case_of(tmp_path, "torch.tanh(x) * y", "torch.randn(8, 16), torch.randn(16)", "x, y")) == []


@pytest.mark.parametrize(
    ("forward", "name"),
    [("x * 0", "task:zeros"), ("torch.softmax(x, 1).sum(1)", "task:constant"), ("x + 1e-3 * torch.Generator().seed() % 7", "task:unrepeatable")],
)
def test_a_task_that_tells_nothing_is_refused_by_name(tmp_path: Path, forward: str, name: str) -> None:
    with pytest.raises(ReferenceFault, match=name):
        case_of(tmp_path, forward)


@pytest.mark.parametrize("forward", ["len(x)", "(len(x), None)", "'x'", "{'n': 1.5}", "(True, x[:0])"])
def test_a_plain_value_that_tells_nothing_is_refused_like_a_tensor(tmp_path: Path, forward: str) -> None:
    with pytest.raises(ReferenceFault, match="task:constant"):
        case_of(tmp_path, forward)


@pytest.mark.parametrize("forward", ["None", "(None, None)", "()", "{'a': []}"])
def test_nothing_is_no_result(tmp_path: Path, forward: str) -> None:
    with pytest.raises(ReferenceFault, match="nothing to compare"):
        case_of(tmp_path, forward)


def test_a_nan_is_the_task_s_fault_whatever_holds_it(tmp_path: Path) -> None:
    for forward in ("(x, float('nan') * float(x.sum()))", "(x, x.sum() * float('nan'))"):
        with pytest.raises(ReferenceFault, match=r"gives 1 NaN in output\[1\]; `allow_nan = true`"):
            case_of(tmp_path, forward)


def test_a_variant_that_makes_a_plain_value_infinite_is_left_out(tmp_path: Path) -> None:
    case = case_of(tmp_path, "(x + 1, float('inf') if float(x.abs().max()) > 5 else float(x.sum()))")

    assert "signs_and_extremes" not in {trial.variant for trial in case.variants()}


def test_a_plain_value_that_inputs_change_is_a_result(tmp_path: Path) -> None:
    assert names(case_of(tmp_path, "float(x.sum())")) == []


@pytest.mark.parametrize(
    ("forward", "written"),
    [
        ("x.tanh_()", [0]),
        ("torch.tanh(x, out=y)", [1]),
        ("(y.copy_(x.tanh()), None)[1]", [1]),
        ("(setattr(y, 'data', x.tanh()), None)[1]", [1]),
        ("x.view(-1).numpy().__imul__(2) is None or y", [0]),
        ("torch.tanh(x)", []),
    ],
)
def test_what_the_reference_leaves_in_its_inputs_is_part_of_its_result(tmp_path: Path, forward: str, written: list[int]) -> None:
    case = case_of(tmp_path, forward, "torch.rand(8, 16), torch.rand(8, 16)", "x, y")

    trial = next(case.trials())

    assert trial.written == written
    assert [leaf.path.split(",")[0] for leaf in trial.expected if leaf.input is not None] == [f"input[{number}] after the call" for number in written]
    truths = trial.oracle.outputs()
    assert truths is not None
    assert len(truths) == len(trial.expected)
    assert all(float((truth - leaf.tensor).abs().max()) < 1e-6 for truth, leaf in zip(truths, trial.expected, strict=True) if leaf.tensor is not None)


@pytest.mark.parametrize(
    ("forward", "name", "words"),
    [
        ("(torch.tanh(x), x * 0)", "task:zeros", r"output\[1\] is zero in every trial"),
        ("(torch.tanh(x), torch.softmax(x, 1).sum(1))", "task:constant", r"output\[1\] is the same in every trial"),
        ("(torch.tanh(x), len(x))", "task:constant", r"output\[1\] is the same in every trial"),
        ("(torch.tanh(x), x + 0)", "task:copy", r"output\[1\] equals input\[0\] in every trial"),
    ],
)
def test_an_output_that_tells_nothing_is_reported_by_name(tmp_path: Path, forward: str, name: str, words: str) -> None:
    case = case_of(tmp_path, forward)

    assert names(case) == [name]
    assert any(name in warning for warning in case.warnings)
    assert re.search(words, case.weaknesses[0].detail)


def test_a_copy_that_a_variant_tells_from_the_output_is_no_weakness(tmp_path: Path) -> None:
    assert names(case_of(tmp_path, "torch.relu(x)", "torch.rand(8, 16)")) == []
    assert names(case_of(tmp_path, "torch.relu(x)", "torch.rand(8, 16)", beyond_inputs=False)) == ["task:copy"]


@pytest.mark.parametrize("other", ["torch.randn(16)", "torch.ones(16, dtype=torch.bool)", "torch.ones(16)"])
def test_an_input_that_makes_no_difference_is_named(tmp_path: Path, other: str) -> None:
    case = case_of(tmp_path, "torch.tanh(x)", f"torch.randn(8, 16), {other}", "x, y")

    assert names(case) == ["task:ignored_input"]
    assert "input[1] makes no difference" in case.weaknesses[0].detail


@pytest.mark.parametrize(("forward", "other"), [("x.masked_fill(~y, 0.0)", "torch.ones(16, dtype=torch.bool)"), ("x[:, y]", "torch.arange(16)")])
def test_a_mask_and_an_index_that_are_used_are_not_named(tmp_path: Path, forward: str, other: str) -> None:
    assert "task:ignored_input" not in names(case_of(tmp_path, forward, f"torch.randn(8, 16), {other}", "x, y"))


@pytest.mark.parametrize(
    ("forward", "other", "told"),
    [
        ("torch.softmax(x / y, -1)", "1.0", "input[1], 1.0, is the same"),
        ("torch.tanh(x).tril() if y else torch.tanh(x)", "False", "input[1], False, is the same"),
        ("torch.cumsum(x, y)", "0", "input[1], 0, is the same"),
        ("torch.tanh(x) * (torch.arange(16) < y[:, None])", "torch.full((8,), 16)", "input[1] is the same"),
    ],
)
def test_an_input_that_is_never_another_one_is_named(tmp_path: Path, forward: str, other: str, told: str) -> None:
    """A candidate that ignores it would pass."""
    case = case_of(tmp_path, forward, f"torch.randn(8, 16), {other}", "x, y")

    assert [(weakness.name, weakness.detail.partition(" in every")[0]) for weakness in case.weaknesses] == [("task:constant_input", told)]


@pytest.mark.parametrize(
    ("forward", "other"),
    [
        ("torch.tanh(x)", "1.0"),
        ("torch.tanh(x) * y", "float(torch.rand(()))"),
        ("torch.tanh(x) * y", "torch.full((16,), 3.0)"),
        ("x[:, y]", "torch.randperm(16)"),
    ],
)
def test_an_input_that_makes_no_difference_or_is_drawn_or_varied_is_not_named(tmp_path: Path, forward: str, other: str) -> None:
    assert "task:constant_input" not in names(case_of(tmp_path, forward, f"torch.randn(8, 16), {other}", "x, y"))
