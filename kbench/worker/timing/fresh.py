"""Fresh contents for the inputs of timed calls: drawn anew where that is cheap, else turned over.

Sets of inputs change all at once: a burst has hundreds of them, and each launch costs a slow host 20 us.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kbench.worker import tensors

# Values are moved as what they are in memory: not every float type can be indexed.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# The share of the sets that is drawn anew when all are to be fresh; all of them change places.
_DRAWN_SHARE = 0.25

Draw = Callable[[], "list[Any]"]


def turn_over(args: list[Any], chooser: random.Random) -> None:
    """Turn a float input over along all its dimensions and change an element of it: no answer of an earlier call is right any more.

    Every value has occurred before, so what holds for given inputs one by one still holds.
    """
    floats = [t for t in tensors.tensors_in(args) if t.is_floating_point() and t.numel() > 1 and t.is_contiguous()]
    if not floats:
        return
    chosen = chooser.choice(floats)
    dims = [dim for dim in range(chosen.dim()) if chosen.shape[dim] > 1]
    chosen.copy_(torch.roll(chosen, [1 + chooser.randrange(chosen.shape[dim] - 1) for dim in dims], dims))
    flat = chosen.view(-1)
    flat[chooser.randrange(flat.numel())] = flat[chooser.randrange(flat.numel())]


class FreshSets:
    """As many sets of inputs as asked for, which change all at once; `args` are the sets, each an argument list.

    With `draw`, which gives a set of the layout that those of the pool have, each is drawn. Without it they are copies
    of those of the pool, no two alike where there is a float to change.
    """

    def __init__(self, pool: Sequence[list[Any]], count: int, chooser: random.Random, draw: Draw | None = None) -> None:
        self._random = chooser
        self._draw = draw
        given = [tensors.tensors_in(args) for args in pool]
        # By the place of the tensor in a set; `None` where the sets have it each for itself.
        self._stacks = [_stacked(leaves, count) for leaves in zip(*given, strict=True)]
        self.args = [self._make(pool[index % len(pool)], index) for index in range(count)]
        if draw is not None:
            self._renew(range(count))
        else:
            for stack in self._changing():
                self._turn(stack)

    def _make(self, args: list[Any], index: int) -> list[Any]:
        stacks = iter(self._stacks)

        def leaf(tensor: torch.Tensor) -> torch.Tensor:
            stack = next(stacks)
            return tensors.clone(tensor) if stack is None else stack[index]  # type: ignore[no-any-return]

        return tensors.map_tensors(args, leaf)  # type: ignore[no-any-return]

    def _changing(self) -> list[torch.Tensor]:
        return [stack for stack in self._stacks if stack is not None and stack.is_floating_point() and stack[0].numel() > 1]

    def freshen(self) -> None:
        """Change every set: draw some anew and let all change places, or turn a float input of each over, as `turn_over` does."""
        if self._draw is not None:
            count = len(self.args)
            self._renew(self._random.sample(range(count), max(1, int(_DRAWN_SHARE * count))))
            self._shuffle()
        elif changing := self._changing():
            self._turn(self._random.choice(changing))

    def _renew(self, indices: Sequence[int]) -> None:
        assert self._draw is not None
        for index in indices:
            for own, drawn in zip(tensors.tensors_in(self.args[index]), tensors.tensors_in(self._draw()), strict=True):
                tensors.span(own).copy_(tensors.span(drawn))

    def _shuffle(self) -> None:
        order = self._random.sample(range(len(self.args)), len(self.args))
        for position, stack in enumerate(self._stacks):
            if stack is not None:
                bits = stack.view(_BITS[stack.element_size()])
                bits.copy_(bits[torch.tensor(order, device=stack.device)])
                continue
            own = [tensors.span(tensors.tensors_in(args)[position]) for args in self.args]
            for tensor, other in zip(own, [own[index].clone() for index in order], strict=True):
                tensor.copy_(other)

    def _turn(self, stack: torch.Tensor) -> None:
        """Each set of a stack by shifts of its own: rows along the first dimension that has any, what is in them along the rest."""
        count = len(stack)
        rows = next((size for size in stack.shape[1:] if size > 1), 1)
        bits = stack.view(_BITS[stack.element_size()])
        by_rows, flat = bits.view(count, rows, -1), bits.view(count, -1)
        width = by_rows.shape[2]
        pick = self._random.randrange
        numel = flat.shape[1]
        numbers = [(1 + pick(max(rows - 1, 1)), pick(width), pick(numel), pick(numel)) for _ in range(count)]
        down, along, to, source = torch.tensor(numbers, device=stack.device).T
        each, row, column = (torch.arange(size, device=stack.device) for size in (count, rows, width))
        by_rows.copy_(by_rows[each[:, None, None], ((row - down[:, None]) % rows)[:, :, None], ((column - along[:, None]) % width)[:, None, :]])
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
    if first.element_size() not in _BITS or not first.numel() or not all(leaf.is_contiguous() for leaf in leaves):
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
