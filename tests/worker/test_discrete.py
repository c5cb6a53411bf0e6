"""Outputs of integers and booleans: ties and rounding boundaries leave several right answers, everything else leaves one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kbench.worker.discrete import RecordOrders
from kbench.worker.reference import CaseReference, Trial
from tests.worker.test_variants import reference_of


def first_trial(reference: CaseReference) -> Trial:
    return next(iter(reference.trials()))


def wrong(reference: CaseReference, actual: torch.Tensor, *, index: int = 0) -> int:
    """How many elements of an output are wrong in the first trial."""
    trial = first_trial(reference)
    expected = trial.expected[index].tensor
    assert expected is not None
    assert trial.undecided is not None
    return int(trial.undecided.wrong(index, actual, expected).sum())


def stable(x: torch.Tensor, count: int, *, last_first: bool = False) -> torch.Tensor:
    """The places of the largest in order, equal ones by their place."""
    places = torch.sort(x.flip(1) if last_first else x, dim=1, descending=True, stable=True).indices[:, :count]
    return x.shape[1] - 1 - places if last_first else places


@pytest.mark.parametrize(
    "forward",
    [
        "torch.topk(x, 5).indices",
        "torch.sort(x, descending=True)[1][:, :5]",
        "x.argsort(descending=True)[:, :5].contiguous()",
        "torch.topk(x, 5).indices + 0",
    ],
)
def test_of_equal_integers_any_order_is_right(tmp_path: Path, forward: str) -> None:
    reference = reference_of(tmp_path, forward, inputs="torch.randint(0, 20, (16, 100))")
    (x,) = first_trial(reference).args

    assert wrong(reference, stable(x, 5)) == 0
    assert wrong(reference, stable(x, 5, last_first=True)) == 0
    assert wrong(reference, stable(x // 2, 5)) > 16
    assert wrong(reference, stable(x, 5).flip(1)) > 16
    assert wrong(reference, stable(x, 5)[:, :1].expand(16, 5)) > 16
    assert wrong(reference, stable(x, 5) + 1000) == 80
    assert wrong(reference, -stable(x, 5) - 1) == 80


def test_a_stable_sort_promises_one_order(tmp_path: Path) -> None:
    reference = reference_of(tmp_path, "torch.sort(x, dim=1, descending=True, stable=True)[1][:, :5]", inputs="torch.randint(0, 20, (16, 100))")
    (x,) = first_trial(reference).args

    assert wrong(reference, stable(x, 5)) == 0
    assert wrong(reference, stable(x, 5, last_first=True)) > 16


@pytest.mark.parametrize("forward", ["x.argmax(dim=1)", "x.max(dim=1, keepdim=True)[1].squeeze(1)", "x.t().max(dim=0).indices", "(-x).argmin(1)"])
def test_of_equal_largest_any_is_right_and_no_other(tmp_path: Path, forward: str) -> None:
    reference = reference_of(tmp_path, forward, inputs="torch.randint(0, 20, (16, 100)).float()")
    (x,) = first_trial(reference).args

    assert wrong(reference, stable(x, 1, last_first=True).squeeze(1)) == 0
    assert wrong(reference, stable(x // 2, 1, last_first=True).squeeze(1)) > 0
    assert wrong(reference, torch.zeros(16, dtype=torch.int64)) > 8


def test_the_place_in_all_of_a_tensor(tmp_path: Path) -> None:
    reference = reference_of(tmp_path, "x.argmax()", inputs="torch.randint(0, 20, (16, 100)).float()")
    (x,) = first_trial(reference).args

    assert wrong(reference, x.numel() - 1 - x.reshape(-1).flip(0).argmax()) == 0
    assert wrong(reference, torch.tensor(int(x.argmin()))) == 1


def test_what_float64_decides_in_another_way_is_right(tmp_path: Path) -> None:
    """In bfloat16 every tenth value is rounded to another integer than the true one."""
    reference = reference_of(tmp_path, "(x * 100).round().to(torch.int32)", inputs="torch.randn(64, 256).bfloat16()")
    trial = first_trial(reference)
    truth = (trial.args[0].double() * 100).round().int()

    assert int((truth != trial.expected[0].tensor).sum()) > 1000
    assert wrong(reference, truth) == 0
    assert wrong(reference, truth + 1) > 10_000


def test_what_hangs_on_rounding_is_undecided_and_little_of_it(tmp_path: Path) -> None:
    """Every value is at a boundary: half of them another way is another rule of rounding."""
    reference = reference_of(tmp_path, "(x + 0.5).round().to(torch.int32)", inputs="torch.randint(0, 50, (64, 64)).float()")
    expected = first_trial(reference).expected[0].tensor
    assert expected is not None
    (x,) = first_trial(reference).args
    few, many, far = expected.clone(), expected.clone(), expected.clone()
    other = (2 * x + 1).int() - expected
    few[:1, :30], many[:4], far[:1, :30] = other[:1, :30], other[:4], other[:1, :30] + 1

    assert wrong(reference, few) == 0
    assert wrong(reference, many) > 200
    assert wrong(reference, far) > 0


@pytest.mark.parametrize("forward", ["x > 0", "(x * 10).round().to(torch.int8)", "x.argmax(dim=1)"])
def test_what_is_clearly_decided_stays_wrong(tmp_path: Path, forward: str) -> None:
    reference = reference_of(tmp_path, forward)
    expected = first_trial(reference).expected[0].tensor
    assert expected is not None
    actual = expected.clone()
    actual.view(-1)[3] = ~actual.view(-1)[3] if actual.dtype == torch.bool else actual.view(-1)[3] + 1

    assert wrong(reference, actual) == 1


def test_an_answer_that_was_accepted_is_not_asked_for_again(tmp_path: Path) -> None:
    reference = reference_of(tmp_path, "torch.topk(x, 5).indices", inputs="torch.randint(0, 20, (16, 100))")
    trial = first_trial(reference)
    calls: list[int] = []
    assert wrong(reference, stable(trial.args[0], 5)) == 0
    trial.undecided._again = lambda: calls.append(1) or []  # type: ignore[union-attr, func-returns-value, assignment]

    assert wrong(reference, stable(trial.args[0], 5)) == 0
    assert calls == []


def test_the_places_of_another_order_are_not_taken_for_these() -> None:
    x = torch.randint(0, 5, (4, 16))
    with RecordOrders(torch.topk(x, 3).indices) as record:
        torch.topk(x.flip(1) * torch.randint(2, 9, (4, 16)), 3)
        torch.topk(x, 3)

    assert len(record.orders) == 1
    assert torch.equal(record.orders[0].source, x)
