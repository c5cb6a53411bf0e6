"""What of an output is kept, and what timed calls are held to."""

from __future__ import annotations

import pytest
import torch

from kbench.worker import distribution
from kbench.worker.evidence import Tolerance

TOLERANCE = Tolerance(by_dtype={}, default=(1e-4, 1e-4))


def noisy(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x + torch.randn_like(x), x.sum(dim=1)


FROZEN = torch.randn(4, 50, generator=torch.Generator().manual_seed(1))
CANDIDATES = {
    "right": noisy,
    "no_noise": lambda x: (x, x.sum(dim=1)),
    "double_noise": lambda x: (x + 2 * torch.randn_like(x), x.sum(dim=1)),
    "frozen_noise": lambda x: (x + FROZEN, x.sum(dim=1)),
    "wrong_sum": lambda x: (x + torch.randn_like(x), 1.01 * x.sum(dim=1)),
}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("right", ""),
        ("no_noise", "drew less, or more"),
        ("double_noise", "drew less, or more"),
        ("frozen_noise", "used one another's draws again"),
        ("wrong_sum", "differ that no draw changes"),
    ],
)
def test_timed_calls_must_draw_as_the_reference_does(name: str, words: str) -> None:
    torch.manual_seed(3)
    timed = distribution.TimedDraws(["output[0]", "output[1]"], [])
    for _ in range(3 * distribution.TIMED_CALLS):
        x = torch.randn(4, 50)
        timed.keep(([x], list(CANDIDATES[name](x))))
    problem = timed.problem(noisy, TOLERANCE)
    assert words in problem
    assert bool(words) == bool(problem)


@pytest.mark.parametrize("frozen", [False, True])
def test_noise_that_is_the_same_in_all_calls_of_one_slot_is_seen(*, frozen: bool) -> None:
    torch.manual_seed(8)
    timed = distribution.TimedDraws(["output[0]", "output[1]"], [])
    for _ in range(3 * distribution.TIMED_CALLS):
        seed = int(torch.randint(2**40, ()))
        calls = []
        for _ in range(2):
            x = torch.randn(4, 50)
            if frozen:
                torch.manual_seed(seed)
            calls.append(([x], list(noisy(x))))
        torch.manual_seed(seed + 1)
        timed.keep(*calls)

    assert bool(timed.problem(noisy, TOLERANCE)) is frozen


def test_noise_left_out_of_every_second_timed_call_is_seen() -> None:
    torch.manual_seed(6)
    timed = distribution.TimedDraws(["output[0]", "output[1]"], [])
    for index in range(100):
        x = torch.randn(4, 50)
        timed.keep(([x], list(noisy(x) if index < 50 else CANDIDATES["no_noise"](x))))
    assert "drew less, or more" in timed.problem(noisy, TOLERANCE)


@pytest.mark.parametrize(("total", "chance", "hits"), [(24, 0.1, 11), (8, 0.1, 6), (12, 0.05, 6), (4, 0.05, 4), (3, 0.05, 4), (0, 0.1, 1)])
def test_chance_hits_that_are_too_many_are_those_of_the_binomial_tail(total: int, chance: float, hits: int) -> None:
    assert distribution._too_many(total, chance) == hits


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (5,), (300, 700), (100_000,), (3, 40_000), (2, 3, 4)])
def test_kept_elements_are_whole_rows_and_columns_with_both_ends(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(4)
    tensor = torch.arange(int(torch.Size(shape).numel()), dtype=torch.float64).reshape(shape)
    leaf = distribution.Leaf(path="o", spec={}, tensor=tensor)
    (kept,) = distribution._places([leaf], [tensor], generator)
    grid = distribution._grid(tensor, kept)
    assert len(grid) == len(kept.rows) * len(kept.columns) <= distribution.KEPT_ELEMENTS
    if tensor.numel():
        assert float(grid[0]) == 0.0
        assert float(grid[-1]) == float(tensor.numel() - 1)


def test_outputs_of_equally_many_rows_share_the_rows_that_are_kept() -> None:
    generator = torch.Generator().manual_seed(5)
    wide, narrow = torch.zeros(50_000, 256), torch.zeros(50_000)
    leaves = [distribution.Leaf(path="o", spec={}, tensor=tensor) for tensor in (wide, narrow)]
    first, second = distribution._places(leaves, [wide, narrow], generator)
    assert torch.equal(first.rows, second.rows)
    assert len(first.columns) >= 64
