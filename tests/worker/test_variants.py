"""Trials beyond the given inputs: what is made of a tensor, what the reference bears, and where it is to be believed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kbench.records import Case
from kbench.worker import variants
from kbench.worker.evidence import Tolerance
from kbench.worker.reference import CaseReference, Reference, Trial

TOLERANCE = Tolerance(by_dtype={}, default=(1e-4, 1e-4))


def reference_of(tmp_path: Path, forward: str, *, inputs: str = "torch.randn(32, 64)", init: str = "pass", trials: int = 2) -> CaseReference:
    """A reference whose forward, inputs and constructor are given as text."""
    path = tmp_path / "task.py"
    path.write_text(
        "import torch\n"
        "class Model(torch.nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n        {init}\n"
        f"    def forward(self, x):\n        return {forward}\n"
        f"def get_inputs():\n    return [{inputs}]\n"
        "def get_init_inputs():\n    return []\n"
    )
    reference = Reference(path, torch.device("cpu"), root_seed=5, label="task")
    return CaseReference(reference, Case(), trials=trials, tolerance=TOLERANCE)


def trials_of(reference: CaseReference) -> dict[str, Trial]:
    return {trial.variant: trial for trial in reference.variants()}


def test_signs_and_extremes_leave_the_given_range_on_both_sides() -> None:
    (changed,) = variants.changed([torch.rand(64, 64)], variants.with_signs)

    assert changed.min() < -4
    assert changed.max() > 4
    assert (changed.abs() <= 1).float().mean() > 0.9


def test_a_tensor_all_alike_but_for_one_element_is_made_of_floats_and_of_masks() -> None:
    floats, mask, counts = variants.changed(
        [torch.randn(40), torch.ones(40, dtype=torch.bool), torch.ones(40, dtype=torch.int64)], variants.with_one_element
    )

    assert floats.count_nonzero() == 1
    assert mask.dtype == torch.bool
    assert (~mask).sum() == 1
    assert counts.sum() == 39


def test_masks_and_indices_keep_their_values_where_floats_leave_theirs() -> None:
    mask, indices = torch.tensor([1.0, 0.0, 1.0]), torch.tensor([5, 3])

    changed = variants.changed([mask, indices], variants.with_signs)

    assert torch.equal(changed[0], mask)
    assert torch.equal(changed[1], indices)


@pytest.mark.parametrize("given", [torch.randn(6, 4).t(), torch.randn(1, 4).expand(6, 4), torch.randn(8, 4)[::2], torch.randn(0, 3)])
def test_strides_and_overlaps_stay(given: torch.Tensor) -> None:
    for change in (variants.with_signs, variants.with_scales, variants.with_one_element):
        (changed,) = variants.changed([given], change)
        assert changed.stride() == given.stride()
        assert changed.shape == given.shape
        assert changed.dtype == given.dtype


def test_a_constant_weight_is_drawn_anew_another_parameter_moves_and_a_table_stays() -> None:
    table = torch.arange(6.0)
    permuted = variants.changed_weight(table, is_parameter=True)

    assert variants.changed_weight(torch.zeros(5), is_parameter=True).count_nonzero() == 5
    assert (variants.changed_weight(torch.ones(5), is_parameter=False) >= 0.5).all()
    assert sorted(permuted.tolist()) == table.tolist()
    assert permuted.tolist() != table.tolist()
    assert torch.equal(variants.changed_weight(table, is_parameter=False), table)


def test_a_reference_gets_every_variant_and_bears_them(tmp_path: Path) -> None:
    reference = reference_of(tmp_path, "torch.nn.functional.gelu(self.linear(x))", init="self.linear = torch.nn.Linear(64, 8)")
    found = trials_of(reference)

    assert list(found) == ["signs_and_extremes", "one_element", "last_element", "weights"]
    assert all(reference.is_sound(trial) for trial in found.values())


def test_where_signs_give_nan_only_scales_are_tried(tmp_path: Path) -> None:
    trial = trials_of(reference_of(tmp_path, "x.sqrt()", inputs="torch.rand(32, 64)"))["signs_and_extremes"]

    assert trial.args[0].min() >= 0
    assert trial.args[0].max() > 2


def test_no_variant_where_the_reference_raises(tmp_path: Path) -> None:
    reference = reference_of(tmp_path, "torch.multinomial(x, 4)", inputs="torch.rand(32, 64)")

    assert "one_element" not in trials_of(reference)


def test_a_tie_tells_nothing(tmp_path: Path) -> None:
    """Of equal values, whichever is the largest is an honest answer."""
    reference = reference_of(tmp_path, "x.argmax(dim=1)")

    assert not reference.is_sound(trials_of(reference)["one_element"])
    assert reference.is_sound(trials_of(reference)["signs_and_extremes"])


def test_a_value_that_rounding_decides_tells_nothing(tmp_path: Path) -> None:
    reference = reference_of(tmp_path, "torch.sin(1e6 * x)")

    assert not reference.is_sound(trials_of(reference)["signs_and_extremes"])


def test_no_variants_of_a_reference_that_keeps_state(tmp_path: Path) -> None:
    path = tmp_path / "task.py"
    path.write_text(
        "import torch\n"
        "class Model(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.calls = 0\n"
        "    def forward(self, x):\n        self.calls += 1\n        return x * self.calls\n"
        "def get_inputs():\n    return [torch.randn(4)]\n"
        "def get_init_inputs():\n    return []\n"
    )
    reference = CaseReference(Reference(path, torch.device("cpu"), root_seed=5, label="task"), Case(), trials=2, tolerance=TOLERANCE)

    assert reference.stateful
    assert list(reference.variants()) == []


@pytest.mark.parametrize("trials", [1, 2, 5])
def test_state_that_moves_an_output_by_less_than_the_tolerance_is_state(tmp_path: Path, trials: int) -> None:
    init = "self.register_buffer('n', torch.zeros(()))"

    assert reference_of(tmp_path, "x + self.n.add_(1e-7)", init=init, trials=trials).stateful


@pytest.mark.parametrize("trials", [1, 2, 5])
def test_state_that_no_output_depends_on_is_none(tmp_path: Path, trials: int) -> None:
    init = "self.norm = torch.nn.BatchNorm1d(64)"

    assert not reference_of(tmp_path, "self.norm(x)", init=init, trials=trials).stateful


def test_a_reference_answers_as_one_that_has_met_the_same_calls(tmp_path: Path) -> None:
    reference = reference_of(tmp_path, "x + self.n.add_(1.0)", init="self.register_buffer('n', torch.zeros(()))")
    first, second = reference.trials()

    aged = reference.aged([first, second, first])

    assert reference.agree(reference.aged([first, second]).expected, second.expected)
    assert aged.expected[0].tensor is not None
    assert torch.equal(aged.expected[0].tensor, first.args[0] + 3)


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (lambda x: torch.multinomial(x, 2), True),
        (lambda x: torch.nn.functional.embedding(torch.tensor([0]), x), True),
        (lambda x: x[torch.tensor([0, 1])], True),
        (lambda x: x[:, 0] * 2, False),
        (lambda x: torch.nn.functional.gelu(x @ x.t()), False),
    ],
)
def test_calls_that_could_stop_a_gpu_are_noticed(call: object, found: bool) -> None:
    with variants.AssertingCalls() as calls:
        call(torch.rand(4, 4))  # type: ignore[operator]

    assert calls.found is found
