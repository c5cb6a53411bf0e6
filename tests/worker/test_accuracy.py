"""Errors against float64, and the arithmetic that they show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kbench.records import Case
from kbench.worker import accuracy
from kbench.worker.evidence import Evidence, Tolerance
from kbench.worker.oracle import ROUNDINGS
from kbench.worker.reference import CaseReference, Reference, Trial

REFERENCE = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(256, 64)
    def forward(self, x):
        return torch.tanh(self.linear(x))
def get_inputs():
    return [torch.randn(32, 256)]
def get_init_inputs():
    return []
"""


@pytest.fixture
def case(tmp_path: Path) -> tuple[CaseReference, Trial]:
    path = tmp_path / "task.py"
    path.write_text(REFERENCE)
    reference = CaseReference(
        Reference(path, torch.device("cpu"), root_seed=3, label="task"), Case(), trials=1, tolerance=Tolerance(by_dtype={}, default=(1e-4, 1e-4))
    )
    return reference, next(iter(reference.trials()))


def measured(case: tuple[CaseReference, Trial], compute: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]) -> accuracy.Accuracy:
    """Measure what `compute(x, weight, bias)` errs by in place of the reference."""
    reference, trial = case
    weights = dict(reference.weights)
    with torch.no_grad():
        actual = torch.tanh(compute(trial.args[0], weights["linear.weight"], weights["linear.bias"]))
    evidence = Evidence(
        expected=trial.expected, expected_tree=trial.tree, tree=trial.tree, actual=[actual.float()], tolerance=reference.tolerance, oracle=trial.oracle
    )
    found = accuracy.measure(evidence, trial.oracle.rounded)
    assert found is not None
    return found


def rounded_to(name: str) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]:
    def compute(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        rounding = ROUNDINGS[name][1]
        return rounding(x).float() @ rounding(weight).float().t() + bias

    return compute


def test_float32_in_another_order_is_float32(case: tuple[CaseReference, Trial]) -> None:
    found = measured(case, lambda x, w, b: sum(part @ v.t() for part, v in zip(x.split(8, 1), w.split(8, 1), strict=True)) + b)

    assert found.arithmetic == "float32"
    assert found.candidate.ulp_p50 < 4
    assert found.candidate.max_abs < 1e-6


@pytest.mark.parametrize(("name", "called"), [("tf32", "TF32"), ("tf32_truncated", "TF32"), ("bfloat16", "bfloat16"), ("float16", "float16")])
def test_operands_of_lower_precision_are_called_by_their_name(case: tuple[CaseReference, Trial], name: str, called: str) -> None:
    assert called in measured(case, rounded_to(name)).arithmetic


def test_three_bfloat16_parts_are_float32(case: tuple[CaseReference, Trial]) -> None:
    def parts(t: torch.Tensor) -> list[torch.Tensor]:
        high = t.bfloat16().float()
        middle = (t - high).bfloat16().float()
        return [high, middle, (t - high - middle).bfloat16().float()]

    def compute(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        a, b = parts(x), parts(weight)
        return sum(a[i] @ b[j].t() for i, j in ((0, 2), (2, 0), (1, 1), (0, 1), (1, 0), (0, 0))) + bias

    assert measured(case, compute).arithmetic == "float32"


def test_half_precision_throughout_is_told_by_the_size_of_its_errors(case: tuple[CaseReference, Trial]) -> None:
    def of(dtype: torch.dtype) -> str:
        def compute(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
            total = torch.zeros(x.shape[0], weight.shape[0], dtype=dtype)
            for part, v in zip(x.to(dtype).split(4, 1), weight.to(dtype).split(4, 1), strict=True):
                total = total + part @ v.t()
            return total + bias.to(dtype)

        return measured(case, compute).arithmetic

    assert of(torch.bfloat16) != "float32"
    assert of(torch.float16) in ("float16", "half precision or less (about 9 bits)")


@pytest.mark.parametrize("compute", [lambda x, w, b: torch.zeros(x.shape[0], w.shape[0]), lambda x, w, b: x @ w.t() * 1.5])
def test_what_is_plainly_wrong_is_no_arithmetic(case: tuple[CaseReference, Trial], compute: Callable[..., torch.Tensor]) -> None:
    assert measured(case, compute).arithmetic == accuracy.PLAINLY_WRONG


@pytest.mark.parametrize(("dtype", "name"), [(torch.bfloat16, "bfloat16"), (torch.float16, "float16")])
def test_outputs_that_are_all_of_a_smaller_type_are_called_by_it(case: tuple[CaseReference, Trial], dtype: torch.dtype, name: str) -> None:
    reference, trial = case
    assert trial.expected[0].tensor is not None
    actual = trial.expected[0].tensor.to(dtype).float()
    evidence = Evidence(
        expected=trial.expected, expected_tree=trial.tree, tree=trial.tree, actual=[actual], tolerance=reference.tolerance, oracle=trial.oracle
    )

    found = accuracy.measure(evidence, trial.oracle.rounded)

    assert found is not None
    assert found.arithmetic == name


def test_who_is_more_accurate_is_told_so(case: tuple[CaseReference, Trial]) -> None:
    found = measured(case, lambda x, w, b: (x.double() @ w.double().t() + b.double()).float())

    assert found.is_more_accurate
    assert accuracy.words(found).endswith("; more accurate than the reference")
    assert found.plain()["more_accurate_than_reference"] is True
    assert found.candidate.ulp_max <= 2


def test_units_in_the_last_place_are_those_of_the_dtype() -> None:
    one = torch.ones(3, dtype=torch.float64)

    assert accuracy._ulp(one, torch.float32).tolist() == [2.0**-23] * 3
    assert accuracy._ulp(one * 0.999, torch.bfloat16).tolist() == [2.0**-8] * 3
    assert accuracy._ulp(one * 0, torch.float16).tolist() == [2.0**-24] * 3
