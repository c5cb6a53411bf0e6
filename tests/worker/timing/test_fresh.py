"""Sets of inputs that change all at once."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import torch

from kbench.worker import memory, tensors
from kbench.worker.timing.fresh import FreshSets, turn_over

CPU = torch.device("cpu")


def rows(args: list[Any]) -> list[tuple[float, ...]]:
    return [tuple(row) for row in args[0].tolist()]


def test_sets_of_a_small_pool_are_made_different_and_the_pool_is_left_alone() -> None:
    pool = [[torch.arange(6.0)], [torch.arange(6.0) * 10]]

    made = FreshSets(pool, 5, random.Random(3)).args

    assert len({tuple(args[0].tolist()) for args in made}) == 5
    assert torch.equal(pool[0][0], torch.arange(6.0))
    assert torch.equal(pool[1][0], torch.arange(6.0) * 10)


@pytest.mark.parametrize("shape", [(4, 3), (1, 4, 3), (4, 1, 3)])
def test_freshening_moves_the_rows_of_every_set_and_keeps_to_its_values(shape: tuple[int, ...]) -> None:
    sets = FreshSets([[torch.arange(12.0).view(shape) + 100 * i] for i in range(3)], 3, random.Random(1))

    before = [args[0].clone().view(4, 3) for args in sets.args]
    sets.freshen()

    for old, args in zip(before, sets.args, strict=True):
        new = args[0].view(4, 3)
        assert set(new.flatten().tolist()) <= set(old.flatten().tolist())
        assert any(int((torch.roll(old, shifts, (0, 1)) != new).sum()) <= 1 for shifts in itertools.product(range(1, 4), range(3)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float8_e4m3fn])
def test_floats_of_every_width_change(dtype: torch.dtype) -> None:
    given = torch.arange(8.0).to(dtype)

    ((changed,),) = FreshSets([[given]], 1, random.Random(1)).args

    assert changed.dtype == dtype
    assert changed.float().tolist() != given.float().tolist()
    assert set(changed.float().tolist()) <= set(given.float().tolist())


def test_drawn_sets_are_none_of_the_pool_and_change_by_draws_and_places() -> None:
    """Integers, too, of which nothing could be turned over, and what has holes."""
    drawn = itertools.count(1)

    def draw() -> list[Any]:
        value = next(drawn)
        return [torch.full((3,), value), torch.full((2,), float(value)).expand(2, 2), torch.tensor(float(value))]

    pool = [[torch.zeros(3, dtype=torch.int64), torch.zeros(2).expand(2, 2), torch.tensor(0.0)]]
    sets = FreshSets(pool, 8, random.Random(1), draw)
    before = [int(args[0][0]) for args in sets.args]
    sets.freshen()
    after = [int(args[0][0]) for args in sets.args]

    assert sorted(before) == list(range(1, 9))
    assert len(set(after) - set(before)) == 2
    assert len(set(after)) == 8
    assert all(float(args[1][0, 0]) == float(args[2]) == int(args[0][0]) for args in sets.args)


def test_turning_over_leaves_no_row_of_a_matrix_where_it_was_nor_as_it_was() -> None:
    old = torch.randn(16, 32)
    args = [old.clone()]

    turn_over(args, random.Random(1))

    rows = {tuple(row) for row in old.tolist()}
    assert not any(tuple(row) in rows for row in args[0].tolist())
    assert set(args[0].flatten().tolist()) <= set(old.flatten().tolist())


def test_sets_with_nothing_to_change_stay_as_they_are() -> None:
    pool = [[torch.arange(4), 3, torch.tensor(1.5)]]

    sets = FreshSets(pool, 2, random.Random(1))
    sets.freshen()

    assert all(torch.equal(args[0], torch.arange(4)) and args[1] == 3 and float(args[2]) == 1.5 for args in sets.args)


def test_only_tensors_without_holes_are_turned_over() -> None:
    """Where elements share memory, moving rows one by one would mix them."""
    wide = torch.arange(3.0).expand(4, 3)

    (args, _) = FreshSets([[wide, torch.arange(4.0)]], 2, random.Random(1)).args

    assert args[0].stride() == (0, 1)
    assert torch.equal(args[0], wide)


@pytest.mark.parametrize("start_bytes", [0, 512 * 3])
def test_sets_are_written_where_their_specs_say(start_bytes: int) -> None:
    pool = [[torch.randn(3, 5), torch.arange(7), {"half": torch.randn(6).half(), "wide": torch.randn(3).expand(2, 3)}] for _ in range(2)]
    sets = FreshSets(pool, 4, random.Random(1))
    layout = tensors.Layout(start_bytes)
    specs = [tensors.describe(args, place=layout.place, trusted=True) for args in sets.args]
    arena = memory.Arena(layout.end_bytes, CPU)

    sets.write(arena.memory, specs)

    for spec, args in zip(specs, sets.args, strict=True):
        found = tensors.tensors_in(tensors.rebuild(spec, lambda leaf: tensors.view_of(arena.memory, leaf)))
        assert all(torch.equal(one, other) for one, other in zip(found, tensors.tensors_in(args), strict=True))


def test_sets_whose_places_have_no_one_distance_are_written_one_by_one() -> None:
    sets = FreshSets([[torch.randn(4)]], 3, random.Random(1))
    layout = tensors.Layout()
    specs = []
    for index, args in enumerate(sets.args):
        layout.reserve(1000 * index)
        specs.append(tensors.describe(args, place=layout.place))
    arena = memory.Arena(layout.end_bytes, CPU)

    sets.write(arena.memory, specs)

    for spec, args in zip(specs, sets.args, strict=True):
        assert torch.equal(tensors.view_of(arena.memory, spec["items"][0]), args[0])
