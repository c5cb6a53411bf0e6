"""What the inputs of every trial have: found where it is plain, never where chance may have made it, and kept by variants."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn.functional import normalize, one_hot

from kbench.worker import invariants, variants
from tests.worker.test_variants import reference_of, trials_of

CHANGES = (variants.with_signs, variants.with_scales, variants.with_one_element)


def symmetric(*shape: int) -> torch.Tensor:
    half = torch.randn(*shape)
    return half + half.mT


def facts_of(draw: Callable[[], list[torch.Tensor]], *, trials: int = 5) -> invariants.Facts:
    found = invariants.of(draw())
    for _ in range(trials - 1):
        found = invariants.common(found, invariants.of(draw()))
    return invariants.believed(found)


STRUCTURED = {
    "symmetric": lambda: symmetric(40, 40),
    "symmetric in half precision": lambda: symmetric(3, 8, 8).half(),
    "symmetric mask": lambda: symmetric(40, 40) > 2,
    "causal": lambda: torch.ones(16, 16, dtype=torch.bool).tril(),
    "causal and expanded": lambda: torch.ones(16, 16).tril().expand(4, 2, 16, 16),
    "causal bias": lambda: torch.full((16, 16), -torch.inf).triu(1),
    "sliding window": lambda: torch.ones(32, 32, dtype=torch.bool).tril().triu(-4),
    "sorted": lambda: torch.randn(64).sort().values,
    "falling columns": lambda: torch.rand(20, 6).sort(0, descending=True).values,
    "steps": lambda: torch.rand(32).cumsum(0),
    "intervals": lambda: torch.rand(40, 2).sort(1).values,
    "padding mask": lambda: torch.arange(50) < torch.randint(10, 40, (16, 1)),
    "probabilities": lambda: torch.randn(16, 20).softmax(1),
    "probabilities in columns": lambda: torch.randn(16, 20).bfloat16().softmax(1).t(),
    "one-hot": lambda: one_hot(torch.randint(0, 20, (64,)), 20).float(),
    "one-hot integers": lambda: one_hot(torch.randint(0, 20, (64,)), 20),
    "quaternions": lambda: normalize(torch.randn(64, 4), dim=1),
}
PLAIN = {
    "normals": lambda: torch.randn(64, 64),
    "uniform": lambda: torch.rand(8, 3, 16, 16),
    "one element": lambda: torch.rand(1),
    "two by two": lambda: torch.rand(2, 2),
    "a pair": lambda: torch.rand(1, 2),
    "three": lambda: torch.rand(3),
    "few values": lambda: torch.randint(0, 3, (2, 2)).float(),
    "ones": lambda: torch.ones(8, 8),
    "zeros": lambda: torch.zeros(64),
    "equal shares": lambda: torch.full((8, 4), 0.25),
    "identity": lambda: torch.eye(64),
    "diagonal": lambda: torch.randn(16).diag(),
    "small mask": lambda: torch.rand(4) > 0.3,
    "scalar": lambda: torch.tensor(0.5),
    "nothing": lambda: torch.randn(0, 3),
}


@pytest.mark.parametrize("draw", STRUCTURED.values(), ids=STRUCTURED)
@pytest.mark.parametrize("change", CHANGES)
def test_a_variant_has_every_fact_of_the_trials(draw: Callable[[], torch.Tensor], change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    torch.manual_seed(1)
    kept = facts_of(lambda: [draw()])
    given = draw()

    (changed,) = variants.changed([given], change, kept)

    assert kept[0]
    assert kept[0].keys() <= invariants.of([given])[0].keys()
    assert kept[0].keys() <= invariants.of([changed])[0].keys()
    assert (changed.shape, changed.stride(), changed.dtype) == (given.shape, given.stride(), given.dtype)


@pytest.mark.parametrize("name", ["symmetric", "sorted", "probabilities", "quaternions", "steps"])
def test_a_variant_of_a_structured_tensor_is_another_tensor(name: str) -> None:
    torch.manual_seed(1)
    kept = facts_of(lambda: [STRUCTURED[name]()])
    given = STRUCTURED[name]()

    (changed,) = variants.changed([given], variants.with_signs, kept)

    assert (changed != given).float().mean() > 0.5


@pytest.mark.parametrize("draw", PLAIN.values(), ids=PLAIN)
@pytest.mark.parametrize("trials", [1, 2, 5])
def test_plain_tensors_have_no_facts(draw: Callable[[], torch.Tensor], trials: int) -> None:
    for seed in range(20):
        torch.manual_seed(seed)
        found = facts_of(lambda: [draw()], trials=trials)
        assert {fact.form for fact in found[0]} <= {"of_zeros_and_ones"}


def test_a_fact_of_some_trials_is_none() -> None:
    draws = iter([symmetric(8, 8), symmetric(8, 8), torch.randn(8, 8)])

    assert facts_of(lambda: [next(draws)], trials=3) == [{}]


def test_a_positive_definite_matrix_stays_one_where_signs_and_sizes_change() -> None:
    torch.manual_seed(1)

    def draw() -> list[torch.Tensor]:
        half = torch.randn(4, 16, 16)
        return [half @ half.mT + torch.eye(16)]

    kept = facts_of(draw)
    for change in (variants.with_signs, variants.with_scales):
        torch.linalg.cholesky(variants.changed(draw(), change, kept)[0])


def test_tensors_that_are_equal_stay_equal() -> None:
    def draw() -> list[torch.Tensor]:
        x = torch.randn(8, 8)
        return [x, torch.randn(8, 8), x.clone()]

    kept = facts_of(draw)
    for change in CHANGES:
        first, other, last = variants.changed(draw(), change, kept)
        assert torch.equal(first, last)
        assert not torch.equal(first, other)


def test_the_one_element_lies_where_there_was_no_zero() -> None:
    for seed in range(20):
        torch.manual_seed(seed)
        triangle = torch.randn(16, 16).tril()
        (changed,) = variants.changed([triangle], variants.with_one_element)
        assert changed.count_nonzero() == 1
        assert changed.triu(1).count_nonzero() == 0


def test_another_shape_or_number_of_inputs_than_in_the_trials_is_changed_all_the_same() -> None:
    kept = facts_of(lambda: [symmetric(8, 8)])

    changed = variants.changed([torch.randn(7), torch.randn(3)], variants.with_signs, kept)

    assert [tensor.shape for tensor in changed] == [(7,), (3,)]


def test_a_reference_keeps_what_its_inputs_have(tmp_path: Path) -> None:
    reference = reference_of(tmp_path, "torch.searchsorted(x, torch.zeros(3))", inputs="torch.randn(64).sort().values")

    assert invariants.words(reference.facts) == "input 0 rising, strictly rising"
    assert all(bool((trial.args[0].diff() >= 0).all()) for trial in trials_of(reference).values())
