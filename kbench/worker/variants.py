"""Inputs and weights beyond the given ones: other signs, extremes, all alike but one element or the last, other parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kbench.worker import invariants, tensors

# Well beyond what a normal draw reaches; so few that sums stay near to what they were.
_EXTREME_FACTOR = 8.0
_EXTREME_SHARE = 1 / 16
_LARGE = 100.0
# Eight units in the last place of float32: more than rounding moves a value by, far less than any tolerance.
_NUDGE = 2.0**-21
# Functions that stop a GPU for good on a value out of their range.
_ASSERTING = frozenset(
    "multinomial bernoulli bernoulli_ binary_cross_entropy embedding embedding_bag gather scatter scatter_ scatter_add scatter_add_ scatter_reduce "
    "scatter_reduce_ index_select index_add index_add_ index_copy index_copy_ index_put index_put_ take take_along_dim put_ nll_loss cross_entropy "
    "one_hot".split()
)
# Of so many places one is no zero, unless most are.
_DRAWN_PLACES = 64
_INDEXING = frozenset({"__getitem__", "__setitem__"})


def with_signs(flat: torch.Tensor) -> torch.Tensor:
    """Turn the sign of every other element at random; every sixteenth is eight times as large."""
    turned = torch.rand(flat.shape, device=flat.device) < 0.5  # noqa: PLR2004 - one half
    return with_scales(torch.where(turned, -flat, flat))


def with_scales(flat: torch.Tensor) -> torch.Tensor:
    """Make every sixteenth element eight times as large, at random; the signs stay."""
    extreme = torch.rand(flat.shape, device=flat.device) < _EXTREME_SHARE
    return torch.where(extreme, flat * _EXTREME_FACTOR, flat)


def with_one_element(flat: torch.Tensor) -> torch.Tensor:
    """Zeros but for one element at a random place where it was no zero, as large as the largest was."""
    result = torch.zeros_like(flat)
    largest = float(flat.abs().max())
    result[_anywhere_but_zeros(flat)] = largest if 0.0 < largest < float("inf") else 1.0
    return result


def with_last_element_large(flat: torch.Tensor) -> torch.Tensor:
    """Zeros but for the last element that was none, which is about 130: an exponential of it is no float32.

    It is drawn, or the difference of two tensors would be all zeros.
    """
    return _with_last_element(flat, _LARGE * (1.0 + 0.5 * float(torch.rand(()))))


def with_last_element(flat: torch.Tensor) -> torch.Tensor:
    """Zeros but for the last element that was none, as large as the largest was."""
    return _with_last_element(flat, float(flat.abs().max()))


def _with_last_element(flat: torch.Tensor, value: float) -> torch.Tensor:
    result = torch.zeros_like(flat)
    result[(flat != 0).nonzero()[-1:]] = value
    return result


# What is tried on float inputs: a name, and the ways to make it, of which the first counts that the reference bears.
INPUTS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], ...]] = {
    "signs_and_extremes": (with_signs, with_scales),
    "one_element": (with_one_element,),
    "last_element": (with_last_element_large, with_last_element),
}
WEIGHTS = "weights"
# In words, for who is told of a failure.
MEANING = {
    "signs_and_extremes": "inputs of either sign, some eight times as large",
    "one_element": "inputs all alike but for one element",
    "last_element": "inputs of zeros but for the last element, which is above 100 or as large as any",
    WEIGHTS: "parameters changed between two calls, constant ones drawn anew",
}


def changed(args: list[Any], change: Callable[[torch.Tensor], torch.Tensor], kept: invariants.Facts | None = None) -> list[Any]:
    """The same arguments with every float tensor changed, strides and overlaps as they are, and the facts that are `kept`.

    A tensor of zeros and ones alone is taken for a mask: it is changed by `with_one_element` only, into the
    commoner of the two but for one element. Other tensors stay as they are: what they may hold is unknown.
    """
    made: list[torch.Tensor] = []

    def apply(tensor: torch.Tensor) -> torch.Tensor:
        facts = kept[len(made)] if kept and len(made) < len(kept) else {}
        new = of_one(tensor)
        made.append(invariants.restored(new, tensor, facts, change, made) if facts else new)
        return made[-1]

    def of_one(tensor: torch.Tensor) -> torch.Tensor:
        flat = tensors.calculable(tensors.span(tensor))
        if not flat.numel() or tensor.is_complex():
            return tensor
        if _is_mask(flat):
            new = _one_deviating(flat) if change is with_one_element else flat
        elif tensor.is_floating_point():
            new = change(flat)
        else:
            return tensor
        return new.to(tensor.dtype).as_strided(tensor.shape, tensor.stride())

    return [tensors.map_tensors(arg, apply) for arg in args]


def nudged(args: list[Any]) -> list[Any]:
    """The same arguments with floats moved by a few units in the last place of float32."""

    def apply(tensor: torch.Tensor) -> torch.Tensor:
        flat = tensors.calculable(tensors.span(tensor))
        if not flat.numel() or not tensor.is_floating_point() or _is_mask(flat):
            return tensor
        size = flat.abs() + flat.float().square().mean().sqrt().to(flat.dtype)
        moved = flat + (2 * torch.rand(flat.shape, device=flat.device) - 1).to(flat.dtype) * _NUDGE * size
        return moved.to(tensor.dtype).as_strided(tensor.shape, tensor.stride())

    return [tensors.map_tensors(arg, apply) for arg in args]


def changed_weight(weight: torch.Tensor, *, is_parameter: bool) -> torch.Tensor:
    """Another value for a weight.

    A constant may switch a branch off: zeros become normal draws, others are scaled by half to three halves.
    The elements of another parameter change places; another buffer may be a table that a kernel knows, and stays.
    """
    flat = tensors.calculable(weight.detach().reshape(-1))
    if not weight.is_floating_point() or not flat.numel():
        return weight.detach()
    if not bool((flat != flat[0]).any()):
        drawn = torch.rand(flat.shape, device=flat.device) + 0.5
        flat = flat * drawn.to(flat.dtype) if bool(flat[0] != 0) else (0.5 * torch.randn(flat.shape, device=flat.device)).to(flat.dtype)
    elif is_parameter:
        flat = torch.roll(flat, int(_anywhere(flat)) or 1)
    return flat.to(weight.dtype).reshape(weight.shape)


class AssertingCalls(TorchFunctionMode):  # type: ignore[misc]
    """Sees whether a run calls what stops a GPU for good on a value out of range: `found`."""

    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ARG002
        name = getattr(func, "__name__", "")
        by_tensor = name in _INDEXING and len(args) > 1 and bool(tensors.tensors_in(args[1]))
        self.found = self.found or name in _ASSERTING or by_tensor
        return func(*args, **(kwargs or {}))


def _is_mask(flat: torch.Tensor) -> bool:
    return not flat.is_complex() and bool(((flat == 0) | (flat == 1)).all())


def _one_deviating(flat: torch.Tensor) -> torch.Tensor:
    is_one = flat == 1
    ones = bool(is_one.sum() * 2 >= flat.numel())
    result = torch.full_like(is_one, ones)
    result[_anywhere(flat)] = not ones
    return result.to(flat.dtype)


def _anywhere_but_zeros(flat: torch.Tensor) -> torch.Tensor:
    """A place that is drawn where there is no zero, which may be there by the task's rule: padding, or half of a matrix."""
    drawn = torch.randint(flat.numel() // 4, flat.numel(), (_DRAWN_PLACES,), device=flat.device)
    found = drawn[flat[drawn] != 0]
    return found[0] if len(found) else flat.abs().argmax()


def _anywhere(flat: torch.Tensor) -> torch.Tensor:
    """A place that is drawn; the first quarter, where a kernel might look, is left out."""
    first = flat.numel() // 4
    return torch.randint(first, flat.numel(), ())
