"""What the inputs of every trial plainly have, so that a variant keeps it: symmetry, order, rows that sum to one, ...

The sign and the range of values are nothing of the kind: that all draws are positive is how a draw is written, as a rule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kbench.worker import tensors

Change = Callable[[torch.Tensor], torch.Tensor]
# A fact counts where chance would give it once in 2 ** 32 runs, about: places that agree with it, summed over the trials.
_EVIDENCE = 32
# So much does a row that sums to one say, where a draw of normals would have to hit it within `_NEAR`.
_EVIDENCE_OF_SUM = 8
_NEAR = 1e-4
# Most tensors have no facts; their first elements tell.
_CORNER, _CORNER_BESIDE = 32, 4


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that a tensor has: the name of a form and the dimension along which, or the number of the tensor that it equals."""

    form: str
    number: int = -1


# The facts of each tensor of the inputs, in order, with what speaks for them.
Facts = list[dict[Fact, int]]


def of(args: list[Any]) -> Facts:
    """Find what each tensor of one set of inputs has."""
    given = tensors.tensors_in(args)
    return [dict(_facts(tensor, given[:index])) for index, tensor in enumerate(given)]


def common(one: Facts, other: Facts) -> Facts:
    """What both have; none where they differ in their number of tensors."""
    if len(one) != len(other):
        return [{} for _ in one]
    return [{fact: count + b[fact] for fact, count in a.items() if fact in b} for a, b in zip(one, other, strict=True)]


def believed(facts: Facts) -> Facts:
    """Those that chance cannot have made."""
    return [{fact: count for fact, count in of_one.items() if count >= _EVIDENCE} for of_one in facts]


def restored(new: torch.Tensor, old: torch.Tensor, facts: dict[Fact, int], change: Change, made: list[torch.Tensor]) -> torch.Tensor:
    """`new`, which `change` made of `old`, with the facts that `old` has; `old` where that cannot be.

    `made` are the tensors before this one, as they are in the variant.
    """
    twin = next((made[fact.number] for fact in facts if fact.form == _EQUAL), None)
    if twin is not None and (twin.shape, twin.stride(), twin.dtype) == (new.shape, new.stride(), new.dtype):
        return _with_core(new, _core(twin))
    core, before = _core(new), _core(old)
    had = [fact for fact in facts if _has(before, fact)]
    if all(_has(core, fact) for fact in had):
        return new
    for fact in had:
        core = _FORMS[fact.form].restore(core, before, fact.number, change)
    core = core.to(old.dtype)
    return _with_core(new, core) if all(_has(core, fact) for fact in had) else old


def words(facts: Facts) -> str:
    """The facts as a person would say them: `input 0 symmetric; input 2 rising, strictly rising`."""
    return "; ".join(f"input {index} " + ", ".join(dict.fromkeys(_in_words(fact) for fact in found)) for index, found in enumerate(facts) if found)


def _in_words(fact: Fact) -> str:
    return f"equal to input {fact.number}" if fact.form == _EQUAL else fact.form.replace("_", " ")


@dataclass(frozen=True, slots=True)
class _Form:
    """Whether a tensor has a form along a dimension, and how to give it back to one that has lost it."""

    holds: Callable[[torch.Tensor, int], bool]
    restore: Callable[[torch.Tensor, torch.Tensor, int, Change], torch.Tensor]
    # Of a matrix, the last two dimensions together; else each dimension by itself, whole where `whole`.
    of_matrix: bool = False
    whole: bool = False


_EQUAL = "equal"
_FLOATS = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16})
# Integers count where they are a mask.
_DTYPES = _FLOATS | {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}


def _facts(tensor: torch.Tensor, before: list[torch.Tensor]) -> Iterator[tuple[Fact, int]]:
    core = _core(tensor)
    overlaps = tensors.span_elements(list(core.shape), list(core.stride())) < core.numel()
    if tensor.dtype not in _DTYPES or not tensor.numel() or overlaps or _is_diagonal(core):
        return
    for index, other in enumerate(before):
        if _are_equal(tensor, other):
            yield Fact(_EQUAL, index), _changes(core, None)
            break
    changes = functools.cache(lambda dim: _changes(core, dim))
    for name, form in _FORMS.items():
        for dim in (-1,) if form.of_matrix else range(core.dim()):
            if form.holds(_corner(core, form, dim), dim) and changes(None) and form.holds(core, dim):
                yield Fact(name, dim), _evidence(name, core, dim, changes)


def _has(core: torch.Tensor, fact: Fact) -> bool:
    form = _FORMS.get(fact.form)
    return form is not None and fact.number < core.dim() and form.holds(core, fact.number)


def _evidence(name: str, core: torch.Tensor, dim: int, changes: Callable[[int | None], int]) -> int:
    if name in _ORDERS:
        return changes(dim)
    return min(changes(None), _EVIDENCE_OF_SUM * (core.numel() // core.shape[dim])) if name in _SUMS else changes(None)


def _changes(core: torch.Tensor, dim: int | None) -> int:
    """How many elements differ from the one before: what is all alike has every form, and says nothing."""
    x, along = (core.reshape(-1), 0) if dim is None else (core, dim)
    return int((_after(x, along) != _before(x, along)).count_nonzero())


def _core(tensor: torch.Tensor) -> torch.Tensor:
    """A view of the tensor with every element once: what is expanded counts as one row."""
    for dim, step in enumerate(tensor.stride()):
        if step == 0 and tensor.shape[dim] > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _with_core(tensor: torch.Tensor, core: torch.Tensor) -> torch.Tensor:
    """A copy of the tensor that has other elements, its strides and holes as they were."""
    copy: torch.Tensor = tensors.clone(tensor)
    _core(copy).copy_(core)
    return copy


def _corner(core: torch.Tensor, form: _Form, dim: int) -> torch.Tensor:
    """The first elements, which have any form that the whole has."""
    tested = {core.dim() - 1, core.dim() - 2} if form.of_matrix else {dim}
    for d, size in enumerate(core.shape):
        if not (form.whole and d in tested):
            core = core.narrow(d, 0, min(size, _CORNER if d in tested else _CORNER_BESIDE))
    return core


def _are_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.stride() != other.stride() or one.dtype != other.dtype:
        return False
    ends = [_corner(tensor, _FORMS["symmetric"], -1) for tensor in (one, other)]
    return bool(torch.equal(*ends)) and bool(torch.equal(one, other))


def _is_diagonal(core: torch.Tensor) -> bool:
    """Of what takes a diagonal matrix for the identity, or for a constant, a variant is to tell: nothing of it is kept."""
    if core.dim() < 2 or core.shape[-1] != core.shape[-2]:  # noqa: PLR2004 - a matrix
        return False
    return not any(bool((part != 0).any()) for matrix in (_corner(core, _FORMS["symmetric"], -1), core) for part in (matrix.tril(-1), matrix.triu(1)))


def _before(x: torch.Tensor, dim: int) -> torch.Tensor:
    return x.narrow(dim, 0, x.shape[dim] - 1)


def _after(x: torch.Tensor, dim: int) -> torch.Tensor:
    return x.narrow(dim, 1, x.shape[dim] - 1)


def _is_symmetric(x: torch.Tensor, _: int) -> bool:
    return x.dim() > 1 and x.shape[-1] == x.shape[-2] > 1 and bool((x == x.mT).all())


def _make_symmetric(new: torch.Tensor, old: torch.Tensor, _: int, change: Change) -> torch.Tensor:
    """Change rows and columns alike, which keeps a matrix positive definite; where elements are to be zeros, mirror the other one."""
    rows = old.shape[:-1]
    factors = change(torch.ones(rows.numel(), device=old.device)).reshape(rows)
    if bool((factors == 0).any()):
        return torch.where(new != new.reshape(-1)[0], new, new.mT)
    factors = factors.sign() * factors.abs().sqrt()
    return old * (factors[..., :, None] * factors[..., None, :])


def _is_along_diagonals(x: torch.Tensor, _: int) -> bool:
    """Whether an element depends on the distance from the diagonal alone, as in a causal mask, a window or a linear bias."""
    return x.dim() > 1 and min(x.shape[-2:]) > 1 and bool((x[..., 1:, 1:] == x[..., :-1, :-1]).all())


def _rises(x: torch.Tensor, dim: int) -> bool:
    return x.shape[dim] > 1 and bool((_after(x, dim) >= _before(x, dim)).all())


def _rises_strictly(x: torch.Tensor, dim: int) -> bool:
    return x.shape[dim] > 1 and bool((_after(x, dim) > _before(x, dim)).all())


def _falls(x: torch.Tensor, dim: int) -> bool:
    return x.shape[dim] > 1 and bool((_after(x, dim) <= _before(x, dim)).all())


def _falls_strictly(x: torch.Tensor, dim: int) -> bool:
    return x.shape[dim] > 1 and bool((_after(x, dim) < _before(x, dim)).all())


def _sort(new: torch.Tensor, old: torch.Tensor, dim: int, change: Change, *, descending: bool = False) -> torch.Tensor:  # noqa: ARG001
    plain = new.to(torch.uint8) if new.dtype == torch.bool else new
    return plain.sort(dim, descending=descending).values


def _sort_down(new: torch.Tensor, old: torch.Tensor, dim: int, change: Change) -> torch.Tensor:
    return _sort(new, old, dim, change, descending=True)


def _sums_to_one(x: torch.Tensor, dim: int) -> bool:
    return x.shape[dim] > 1 and bool(x.amin() >= 0) and _are_ones(x.sum(dim, dtype=_wide(x)), x)


def _make_sums_one(new: torch.Tensor, old: torch.Tensor, dim: int, change: Change) -> torch.Tensor:  # noqa: ARG001
    """Magnitudes over their sum; a row that is all zeros stays as it was."""
    size = new.to(_wide(new)).abs()
    total = size.sum(dim, keepdim=True)
    return torch.where(total > 0, size / total, old.to(size.dtype))


def _has_norm_one(x: torch.Tensor, dim: int) -> bool:
    return x.is_floating_point() and x.shape[dim] > 1 and _are_ones(torch.linalg.vector_norm(x, dim=dim, dtype=_wide(x)), x)


def _make_norm_one(new: torch.Tensor, old: torch.Tensor, dim: int, change: Change) -> torch.Tensor:  # noqa: ARG001
    """A row over its norm; one that is all zeros stays as it was."""
    wide = new.to(_wide(new))
    norm = torch.linalg.vector_norm(wide, dim=dim, keepdim=True)
    return torch.where(norm > 0, wide / norm, old.to(wide.dtype))


def _are_ones(sums: torch.Tensor, x: torch.Tensor) -> bool:
    near = max(_NEAR, 2 * torch.finfo(x.dtype).eps) if x.is_floating_point() else 0.0
    return bool(((sums - 1).abs() <= near).all())


def _wide(x: torch.Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _is_mask(x: torch.Tensor, dim: int) -> bool:
    return dim == 0 and (x.dtype == torch.bool or bool(((x == 0) | (x == 1)).all()))


def _keep(new: torch.Tensor, old: torch.Tensor, dim: int, change: Change) -> torch.Tensor:  # noqa: ARG001
    return new


def _take_back(new: torch.Tensor, old: torch.Tensor, dim: int, change: Change) -> torch.Tensor:  # noqa: ARG001
    return old


_FORMS = {
    "of_zeros_and_ones": _Form(_is_mask, _keep),
    "symmetric": _Form(_is_symmetric, _make_symmetric, of_matrix=True),
    "constant_along_diagonals": _Form(_is_along_diagonals, _take_back, of_matrix=True),
    "with_sums_of_one": _Form(_sums_to_one, _make_sums_one, whole=True),
    "with_norms_of_one": _Form(_has_norm_one, _make_norm_one, whole=True),
    "rising": _Form(_rises, _sort),
    "strictly_rising": _Form(_rises_strictly, _sort),
    "falling": _Form(_falls, _sort_down),
    "strictly_falling": _Form(_falls_strictly, _sort_down),
}
_ORDERS = ("rising", "strictly_rising", "falling", "strictly_falling")
_SUMS = ("with_sums_of_one", "with_norms_of_one")
