"""How a candidate's weights are paired with the reference's."""

from __future__ import annotations

from kbench.worker.session import match_weights, unsaid

W = ("weight", "float32", [4, 3])
B = ("bias", "float32", [4])


def test_equal_names_and_shapes_are_paired_by_name_in_any_order() -> None:
    assert match_weights([W, B], [B, W]) == ({"weight": "weight", "bias": "bias"}, "name")


def test_other_names_with_the_same_sequence_of_shapes_are_paired_by_order() -> None:
    assert match_weights([W, B], [("w", *W[1:]), ("b", *B[1:])]) == ({"weight": "w", "bias": "b"}, "order")


def test_other_names_in_another_order_are_paired_by_shape_where_shapes_are_unique() -> None:
    assert match_weights([W, B], [("b", *B[1:]), ("w", *W[1:])]) == ({"weight": "w", "bias": "b"}, "shape")


def test_shapes_that_occur_twice_in_another_order_are_not_guessed() -> None:
    twice = [("a", "float32", [2]), ("b", "float32", [2]), ("c", "float32", [3])]
    other = [("x", "float32", [3]), ("y", "float32", [2]), ("z", "float32", [2])]

    assert match_weights(twice, other) == ({}, "unmatched")


def test_what_a_candidate_has_besides_leaves_the_others_paired_by_name() -> None:
    work = ("work", "float32", [8, 16])

    assert match_weights([W, B], [work, B, W]) == ({"weight": "weight", "bias": "bias"}, "name")
    assert match_weights([W, B], [work, B, ("weight", "float64", [4, 3])]) == ({}, "unmatched")


def test_missing_weights_are_unmatched_and_no_weights_are_nothing_to_match() -> None:
    assert match_weights([W, B], [W]) == ({}, "unmatched")
    assert match_weights([W], []) == ({}, "unmatched")
    assert match_weights([], [W]) == ({}, "none")


def test_a_note_is_said_once_whatever_its_figures() -> None:
    said = ["output[1]: accepted (candidate 1, reference 2)"]

    assert unsaid(["output[1]: accepted (candidate 3, reference 4)", "output[0]: accepted (candidate 3)", "a generator moved"], said) == [
        "output[0]: accepted (candidate 3)",
        "a generator moved",
    ]
