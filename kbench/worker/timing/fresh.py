"""Sets of inputs that change all at once: a burst has hundreds of them, and each launch costs a slow host 20 us."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import torch

from kbench.worker import tensors

# Values are moved as what they are in memory: not every float type can be indexed.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class FreshSets:
    """As many sets of inputs as asked for, made of those of a pool, no two alike where there is a float to change.

    The sets of the pool have one layout; they are copied. `args` are the sets, each an argument list.
    """

    def __init__(self, pool: Sequence[list[Any]], count: int, chooser: random.Random) -> None:
        self._random = chooser
        given = [tensors.tensors_in(args) for args in pool]
        # By the place of the tensor in a set; `None` where it cannot change.
        self._stacks = [_stacked(leaves, count) for leaves in zip(*given, strict=True)]
        self.args = [self._make(pool[index % len(pool)], index) for index in range(count)]
        for stack in self._changing():
            self._turn(stack)

    def _make(self, args: list[Any], index: int) -> list[Any]:
        stacks = iter(self._stacks)

        def leaf(tensor: torch.Tensor) -> torch.Tensor:
            stack = next(stacks)
            return tensors.clone(tensor) if stack is None else stack[index]  # type: ignore[no-any-return]

        return tensors.map_tensors(args, leaf)  # type: ignore[no-any-return]

    def _changing(self) -> list[torch.Tensor]:
        return [stack for stack in self._stacks if stack is not None]

    def freshen(self) -> None:
        """Turn a float input of every set over and change an element of it: no answer of an earlier call is right any more.

        Rows move as wholes and every value has occurred before, so what holds for given inputs still holds.
        """
        if changing := self._changing():
            self._turn(self._random.choice(changing))

    def _turn(self, stack: torch.Tensor) -> None:
        count = len(stack)
        rows = next((size for size in stack.shape[1:] if size > 1), 1)
        pick = self._random.randrange
        numel = stack[0].numel()
        numbers = [(1 + pick(max(rows - 1, 1)), pick(numel), pick(numel)) for _ in range(count)]
        shift, to, source = torch.tensor(numbers, device=stack.device).T
        each = torch.arange(count, device=stack.device)
        bits = stack.view(_BITS[stack.element_size()])
        by_rows, flat = bits.view(count, rows, -1), bits.view(count, -1)
        by_rows.copy_(by_rows[each[:, None], (torch.arange(rows, device=stack.device) - shift[:, None]) % rows])
        flat[each, to] = flat[each, source]

    def write(self, memory: torch.Tensor, specs: Sequence[tensors.Spec]) -> None:
        """Write all sets into a flat arena, each where its spec says."""
        places = [[leaf for _, leaf in tensors.leaves(spec) if leaf["k"] == "tensor"] for spec in specs]
        given = [tensors.tensors_in(args) for args in self.args[: len(specs)]]
        for stack, at, values in zip(self._stacks, zip(*places, strict=True), zip(*given, strict=True), strict=True):
            if stack is None or not _write_evenly(memory, at, stack):
                for place, value in zip(at, values, strict=True):
                    tensors.write_tree(memory, place, value)


def _stacked(leaves: Sequence[torch.Tensor], count: int) -> torch.Tensor | None:
    first = leaves[0]
    if not first.is_floating_point() or first.numel() < 2 or not all(leaf.is_contiguous() for leaf in leaves):  # noqa: PLR2004 - one element has no other value
        return None
    bits = [leaf.view(_BITS[leaf.element_size()]) for leaf in leaves]
    return torch.stack([bits[index % len(bits)] for index in range(count)]).view(first.dtype)


def _write_evenly(memory: torch.Tensor, places: Sequence[tensors.Spec], stack: torch.Tensor) -> bool:
    """Write a stack in one go, where its places have one distance."""
    steps = {after["offset"] - before["offset"] for before, after in itertools.pairwise(places)}
    if len(steps) > 1:
        return False
    step = (steps.pop() if steps else 0) // stack.element_size()
    first = places[0]
    over_all = {**first, "shape": [len(places), *first["shape"]], "stride": [step, *first["stride"]]}
    tensors.view_of(memory, over_all).copy_(stack[: len(places)])
    return True
