"""Each check on evidence made by hand: what it lets through and what it does not."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from kbench.records import Status
from kbench.worker import tensors
from kbench.worker.candidate import describe_output
from kbench.worker.checks import CHECKS, state, values
from kbench.worker.evidence import Evidence, Leaf, Tolerance

TOLERANCE = Tolerance(by_dtype={"float16": (1e-2, 1e-2)}, default=(1e-4, 1e-4))


class FixedOracle:
    """An oracle that knows the truth already."""

    def __init__(self, truths: list[torch.Tensor | None] | None) -> None:
        self._truths = truths

    def outputs(self) -> list[torch.Tensor | None] | None:
        return self._truths


def evidence(actual: Any, expected: Any, *, truths: list[torch.Tensor | None] | None = None, **more: Any) -> Evidence:
    given: list[torch.Tensor] = []
    tree = describe_output(actual, given)
    wanted: list[torch.Tensor] = []
    expected_tree = describe_output(expected, wanted)
    expected_tensors, actual_tensors = iter(wanted), iter(given)
    leaves = [Leaf(path=path, spec=spec, tensor=next(expected_tensors) if spec["k"] == "tensor" else None) for path, spec in tensors.leaves(expected_tree)]
    return Evidence(
        expected=leaves,
        expected_tree=expected_tree,
        tree=tree,
        actual=[next(actual_tensors, None) if leaf.tensor is not None else None for leaf in leaves],
        tolerance=TOLERANCE,
        oracle=FixedOracle(truths),
        **more,
    )


def outcome(name: str, *args: Any, **more: Any) -> tuple[Status, str]:
    result = CHECKS[name](evidence(*args, **more))
    return result.status, result.detail


T = torch.ones(2, 3)


@pytest.mark.parametrize(
    ("actual", "expected", "words"),
    [
        (T, (T,), "output: a tensor, expected a tuple or list"),
        ((T,), (T, T), "output: 1 items, expected 2"),
        ((), (T,), "output: 0 items, expected 1"),
        ({"a": T}, {"b": T}, "keys"),
        ([T, None], [T, T], "output[1]: None, expected a tensor"),
        ([T, 1], [T, 1.0], "output[1]: a Python int, expected a Python float"),
        ([True], [1], "a Python bool"),
        ({"a": [T, "x"]}, {"a": [T, T]}, "output[a][1]"),
    ],
)
def test_another_structure_is_named_where_it_differs(actual: Any, expected: Any, words: str) -> None:
    status, detail = outcome("structure", actual, expected)

    assert status is Status.FAIL
    assert words in detail


def test_a_list_may_stand_for_a_tuple() -> None:
    """An extension that returns std::vector<Tensor> gives a list."""
    assert outcome("structure", [T, T], (T, T))[0] is Status.PASS


def test_the_order_of_a_dict_is_no_difference() -> None:
    ones, twos = torch.ones(2), torch.full((3,), 2.0)

    for name in ("structure", "shape", "values"):
        assert outcome(name, {"b": twos, "a": [ones], 3: 1, True: None}, {True: None, 3: 1, "a": [ones], "b": twos})[0] is Status.PASS
    assert "output[a]" in outcome("values", {"b": ones, "a": ones + 1}, {"a": ones, "b": ones})[1]
    assert "keys" in outcome("structure", {"a": ones, "c": ones}, {"a": ones, "b": ones})[1]


def test_a_dict_that_makes_its_items_when_asked_is_taken_for_what_it_holds() -> None:
    class Late(dict[str, torch.Tensor]):
        def __getitem__(self, key: str) -> torch.Tensor:
            return torch.ones(2)

        def values(self) -> Any:
            return [torch.ones(2)]

    assert outcome("values", Late(a=torch.zeros(2)), {"a": torch.ones(2)})[0] is Status.FAIL


def test_a_subclass_and_a_shadowed_method_are_no_tensors() -> None:
    class Lazy(torch.Tensor):
        pass

    shadowed = torch.ones(2)
    shadowed.clone = lambda: torch.zeros(2)  # type: ignore[method-assign]

    assert "subclass" in outcome("structure", T.as_subclass(Lazy), T)[1]
    assert "attributes of its own: clone" in outcome("structure", shadowed, T)[1]


def test_nothing_is_broadcast() -> None:
    assert outcome("shape", torch.ones(()), T) == (Status.FAIL, "output: shape [], expected [2, 3]")
    assert outcome("shape", torch.ones(1, 2, 3), T)[0] is Status.FAIL


def test_an_index_of_another_width_is_named_by_its_dtype() -> None:
    expected = (torch.ones(2), torch.tensor([1, 2]))
    actual = (torch.ones(2), torch.tensor([1, 2], dtype=torch.int32))

    assert outcome("dtype", actual, expected) == (Status.FAIL, "output[1]: dtype int32, expected int64")


def test_nan_counts_only_where_the_reference_has_it_too() -> None:
    nan = torch.tensor([1.0, math.nan])

    assert outcome("nan", nan, torch.ones(2))[0] is Status.FAIL
    assert outcome("nan", torch.ones(2), nan)[0] is Status.FAIL
    assert outcome("nan", nan, nan.clone())[0] is Status.PASS
    assert outcome("values", nan, nan.clone())[0] is Status.PASS


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.complex64])
def test_nan_out_of_the_memory_around_inputs_is_told_from_other_nan(dtype: torch.dtype) -> None:
    poison = torch.full((3, 16), 0xFF, dtype=torch.uint8).view(dtype)

    assert "in a later call, when it has been taken back" in outcome("nan", poison, torch.ones_like(poison))[1]
    assert "taken back" not in outcome("nan", torch.full_like(poison, math.nan), torch.ones_like(poison))[1]
    assert "taken back" not in outcome("nan", torch.ones_like(poison), poison)[1]


def test_an_infinity_matches_only_itself() -> None:
    inf = torch.tensor([math.inf, -math.inf, 1.0])

    assert outcome("values", inf, inf.clone())[0] is Status.PASS
    assert outcome("values", -inf, inf)[0] is Status.FAIL
    assert outcome("values", torch.tensor([1e38, -math.inf, 1.0]), inf)[0] is Status.FAIL


def test_the_tolerance_is_absolute_plus_relative() -> None:
    expected = torch.tensor([0.0, 10.0])

    assert outcome("values", torch.tensor([0.9e-4, 10.0]), expected)[0] is Status.PASS
    assert outcome("values", torch.tensor([1.1e-4, 10.0]), expected)[0] is Status.FAIL
    assert outcome("values", torch.tensor([0.0, 10.0010]), expected)[0] is Status.PASS
    assert outcome("values", torch.tensor([0.0, 10.0012]), expected)[0] is Status.FAIL


def test_a_wrong_output_says_where_how_many_and_both_values() -> None:
    expected = torch.zeros(4, 8)
    actual = expected.clone()
    actual[3, 7] = 0.5
    actual[0, 0] = 0.25

    assert outcome("values", [T, actual], [T, expected])[1].startswith(
        "output[1]: 2 of 32 elements outside atol=0.0001 rtol=0.0001; worst at [3, 7]: 0.5 against 0"
    )


def test_zeros_do_not_hide_under_the_absolute_tolerance() -> None:
    """A softmax over 393216 columns gives 2.5e-6: zeros are within 1e-4 of it."""
    expected = torch.softmax(torch.rand(2, 393_216), -1)

    status, detail = outcome("values", torch.zeros_like(expected), expected)

    assert status is Status.FAIL
    assert "scaled to the output" in detail


def test_half_precision_does_not_hide_in_small_outputs() -> None:
    truth = torch.randn(1000, dtype=torch.float64) * 1e-3
    expected = truth.float()

    assert outcome("values", truth.half().float(), expected, truths=[truth])[0] is Status.FAIL


def test_a_variant_that_makes_outputs_large_makes_what_they_may_err_by_large() -> None:
    expected = torch.full((100,), 1000.0)
    expected[0] = 0.1
    actual = expected.clone()
    actual[0] += 5e-4
    truths: list[torch.Tensor | None] = [expected.double()]

    assert outcome("values", actual, expected, truths=truths, is_variant=True)[0] is Status.PASS
    assert outcome("values", actual, expected, truths=truths)[0] is Status.FAIL
    assert outcome("values", expected * 1.001, expected, truths=truths, is_variant=True)[0] is Status.FAIL


def test_who_is_nearer_to_float64_than_the_reference_passes_and_is_told_so() -> None:
    """Cancellation: the result is small beside what was summed, so float32 errs by much of it."""
    terms = torch.randn(64, 4096, dtype=torch.float64) * 1e3
    terms -= terms.mean(1, keepdim=True)
    truth = terms.sum(1)
    expected = terms.float().sum(1)

    status, detail = outcome("values", truth.float(), expected, truths=[truth])
    assert status is Status.PASS
    assert "against float64" in detail


def test_integers_and_booleans_are_compared_exactly() -> None:
    assert outcome("values", torch.tensor([1, 2]), torch.tensor([1, 2]))[0] is Status.PASS
    assert outcome("values", torch.tensor([1, 3]), torch.tensor([1, 2])) == (
        Status.FAIL,
        "output: 1 of 2 elements differ, first at [1]: 3 against 2",
    )
    assert outcome("values", torch.tensor([True]), torch.tensor([False]))[0] is Status.FAIL


def test_plain_values_are_compared_too() -> None:
    assert outcome("values", [T, 2.0, "a", None], [T, 2.0, "a", None])[0] is Status.PASS
    assert outcome("values", [T, 2.0], [T, 2.1])[0] is Status.FAIL
    assert outcome("values", [T, 3], [T, 4])[1] == "output[1]: 3 against 4"


def test_each_dtype_has_its_tolerance() -> None:
    expected = torch.ones(4, dtype=torch.float16)

    assert outcome("values", expected * 1.005, expected)[0] is Status.PASS
    assert outcome("values", (expected * 1.005).float(), expected.float())[0] is Status.FAIL


def test_empty_tensors_agree() -> None:
    assert outcome("values", torch.ones(0, 3), torch.ones(0, 3))[0] is Status.PASS


def test_errors_are_kept_for_the_record() -> None:
    found = evidence(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.00005]))
    values.check(found)

    assert found.max_abs_error == pytest.approx(5e-5, rel=1e-2)
    assert found.max_rel_error == pytest.approx(2.5e-5, rel=1e-2)


@pytest.mark.parametrize(
    ("name", "facts", "words"),
    [
        ("mutation", {"inputs_changed": ["input[0]"]}, "input[0] modified"),
        ("mutation", {"inputs_reformed": ["input[0]"]}, "input[0]: another shape"),
        ("mutation", {"written_outside": ["past the end of output tensor 0"]}, "past the end"),
        ("state", {"state_changed": ["weight"]}, "weight"),
        ("patched", {"globals_changed": ["torch.allclose"]}, "torch.allclose"),
        ("launch", {"cuda_error": "invalid configuration argument"}, "invalid configuration"),
    ],
)
def test_a_fact_beside_the_outputs_fails_by_its_own_check(name: str, facts: dict[str, Any], words: str) -> None:
    status, detail = outcome(name, T, T, **facts)

    assert status is Status.FAIL
    assert words in detail
    assert outcome(name, T, T)[0] is Status.PASS


@pytest.mark.parametrize(
    ("actual", "words"),
    [
        (torch.tensor([1.0, 1.1]), ""),
        (torch.tensor([1.0, 1.1000001]), ""),
        (torch.tensor([1.0, 1.0]), "1 of 2 elements"),
        (torch.tensor([1.0, float("nan")]), "nan against 1.1"),
        (None, "no longer there"),
    ],
)
def test_a_weight_that_the_reference_changes_must_follow_it(actual: torch.Tensor | None, words: str) -> None:
    """Batch normalisation in training updates its running variance."""
    problem = state.follows("variance", actual, torch.tensor([1.0, 1.1]), torch.ones(2), evidence(T, T).tolerance)

    assert words in problem
    assert bool(words) == bool(problem)


def test_a_weight_that_stays_where_it_began_does_not_follow_within_any_tolerance() -> None:
    given, expected = torch.zeros(2), torch.tensor([3e-5, -2e-5])

    assert not state.follows("mean", expected * 1.01, expected, given, evidence(T, T).tolerance)
    assert state.follows("mean", given, expected, given, evidence(T, T).tolerance)


def test_an_integer_that_the_reference_counts_up_must_equal_its() -> None:
    assert "1 of 1 elements" in state.follows("calls", torch.tensor(0), torch.tensor(5), torch.tensor(0), evidence(T, T).tolerance)
    assert not state.follows("calls", torch.tensor(5), torch.tensor(5), torch.tensor(0), evidence(T, T).tolerance)


def test_a_weight_that_the_reference_never_changes_keeps_its_values() -> None:
    given = torch.tensor([1.0, float("nan")])

    assert not state.kept("weight", given.clone(), given)
    assert "changed weight" in state.kept("weight", given * 1.0000001, given)
    assert "no longer there" in state.kept("weight", None, given)


def test_a_generator_left_elsewhere_is_a_note_not_a_failure() -> None:
    found = evidence(T, T, expected_generators={"cpu": "a"}, generators={"cpu": "b"})

    assert CHECKS["draws"](found).status is Status.PASS
    assert found.notes == ["the cpu generator is left in another state than the reference leaves it in"]


def test_of_discrete_outputs_only_what_is_wrong_in_every_right_answer_counts() -> None:
    class OneTie:
        def wrong(self, index: int, actual: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
            return (actual != expected) & (torch.arange(actual.numel()) != 1)

    places = torch.tensor([3, 1, 2])
    both = evidence(torch.tensor([3, 2, 1]), places, undecided=OneTie())
    tie = evidence(torch.tensor([3, 2, 2]), places, undecided=OneTie())

    assert values.check(both).detail == (
        "output: 1 of 3 elements differ, first at [2]: 1 against 2; besides, 1 of 3 elements at ties or rounding boundaries do not count"
    )
    assert values.check(tie).status is Status.PASS
    assert tie.notes == ["output: accepted with other values, as right as the reference's (1 of 3 elements at ties or rounding boundaries)"]
    assert outcome("values", torch.tensor([3, 2, 2]), places)[1] == "output: 1 of 3 elements differ, first at [1]: 2 against 1"


@pytest.mark.parametrize("byte", [0x7B, 0xFB])
def test_a_huge_number_from_where_no_input_lies_is_told_as_such(byte: int) -> None:
    huge = torch.full((4,), byte, dtype=torch.uint8).view(torch.float32)

    assert "where no input lies" in outcome("values", huge, torch.ones(1))[1]
    assert "where no input lies" not in outcome("values", huge * 2, torch.ones(1))[1]
