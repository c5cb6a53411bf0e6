"""Outputs of integers and booleans: which other answers are as right as the reference's, where ties or rounding decide."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kbench.worker.oracle import DispatchMode

# Beyond what float64 and ties explain, one element in a hundred may hang on rounding; of a small output, one.
_MOST_UNDECIDED = 1 / 100
# The reference is asked so often, and for so long. An element that hangs on rounding turns in two to five of ten runs.
_RUNS, _SECONDS = 24, 10.0
# Values are a tie where they are this near to each other: sixteen units in the last place of float32.
_TIE = 2.0**-19
# Operators that order elements or choose one, and return where it is: those that return as many places as they are asked for, no
# place twice, and those that leave one of a row.
_SORTING = frozenset({"sort", "argsort", "topk"})
_CHOOSING = frozenset({"argmax", "argmin", "max", "min", "kthvalue", "median", "nanmedian", "mode"})


@dataclass(frozen=True, slots=True)
class _Order:
    """What an operator ordered, along which dimension, and the places that it returned, of the same number of dimensions."""

    source: torch.Tensor
    dim: int
    places: torch.Tensor
    is_sorted: bool

    def tied(self, actual: torch.Tensor) -> torch.Tensor:
        """Where other places hold the same values, and no place of a row is given twice."""
        given = actual.reshape(self.places.shape).long()
        # A candidate may return any number.
        is_place = (given >= 0) & (given < self.source.shape[self.dim])
        value, other = (self.source.gather(self.dim, places) for places in (self.places, torch.where(is_place, given, 0)))
        same = value == other
        if value.is_floating_point():
            value, other = value.double(), other.double()
            same |= (value - other).abs() <= _TIE * (value.abs() + other.abs())
        if self.is_sorted:
            in_order = given.sort(self.dim).values
            same = same & (in_order.diff(dim=self.dim) != 0).all(self.dim, keepdim=True)
        return (same & is_place).reshape(actual.shape)


class RecordOrders(DispatchMode):
    """Keeps what a run ordered to come to the places `expected`, an output; of a stable sort, which promises one order, nothing."""

    def __init__(self, expected: torch.Tensor) -> None:
        super().__init__()
        self._expected = expected
        self.orders: list[_Order] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ARG002
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        places = result[-1] if isinstance(result, tuple) else result if name.startswith("arg") else None
        if name in _SORTING | _CHOOSING and isinstance(places, torch.Tensor):
            given = {argument.name: argument.default_value for argument in func._schema.arguments}
            given |= {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)} | (kwargs or {})
            self._keep(given, places, is_sorted=name in _SORTING)
        return result

    def _keep(self, given: dict[str, Any], places: torch.Tensor, *, is_sorted: bool) -> None:
        source, dim = given["self"], given.get("dim")
        if given.get("stable") or not source.dim() or places.dtype != torch.int64:
            return
        if dim is None:
            source, dim, places = source.reshape(-1), 0, places.reshape(1)
        elif not is_sorted and not given.get("keepdim"):
            places = places.unsqueeze(dim)
        dim %= source.dim()
        expected = self._expected
        beside = [size for d, size in enumerate(expected.shape) if d != dim]
        if (
            expected.dim() == places.dim()
            and expected.shape[dim] < places.shape[dim]
            and beside == [size for d, size in enumerate(places.shape) if d != dim]
        ):
            # The first of those that were sorted.
            places = places.narrow(dim, 0, expected.shape[dim])
        if expected.numel() == places.numel() and bool((expected.reshape(places.shape) == places).all()):
            self.orders.append(_Order(source.clone(), dim, places.clone(), is_sorted))


class Undecided:
    """Asks the reference again which answers to one call are right.

    `again` runs it as it was, `nudged` on inputs that rounding moved, otherwise in each call; both give all leaves in order.
    `truths` gives those of the float64 run that are no floats.
    """

    def __init__(self, again: Callable[[], list[Any]], nudged: Callable[[int], list[Any]], truths: Callable[[], list[Any]]) -> None:
        self._again = again
        self._nudged = nudged
        self._truths = truths
        self._accepted: dict[int, torch.Tensor] = {}

    def wrong(self, index: int, actual: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
        """Where a leaf is neither as expected, nor a tie, nor what float64 gives, nor, in few places, what the reference gives on nudged inputs."""
        wrong = actual != expected
        accepted = self._accepted.get(index)
        if accepted is not None and torch.equal(accepted, actual):
            return torch.zeros_like(wrong)
        try:
            wrong = self._ask(index, actual, expected, wrong)
        except Exception:  # noqa: BLE001 - a reference that cannot be asked leaves the answer as it was
            return wrong
        if not bool(wrong.any()):
            self._accepted[index] = actual.clone()
        return wrong

    def _ask(self, index: int, actual: torch.Tensor, expected: torch.Tensor, wrong: torch.Tensor) -> torch.Tensor:
        if not bool(wrong.any()):
            return wrong
        with RecordOrders(expected) as record:
            self._again()
        if record.orders:
            # Of two that gave the same places either may be the one.
            wrong = wrong & ~torch.stack([order.tied(actual) for order in record.orders]).all(0)
        for truth in self._truths()[index : index + 1]:
            wrong = wrong & _differs(actual, truth)
        most = max(1, int(_MOST_UNDECIDED * actual.numel()))
        started = time.monotonic()
        for number in range(_RUNS):
            if not 0 < int(wrong.sum()) <= most or time.monotonic() - started > _SECONDS:
                break
            wrong = wrong & _differs(actual, self._nudged(number)[index])
        return wrong


def _differs(actual: torch.Tensor, answer: Any) -> torch.Tensor:
    is_answer = isinstance(answer, torch.Tensor) and answer.shape == actual.shape
    return actual != answer if is_answer else torch.ones_like(actual, dtype=torch.bool)
