"""Is every element within tolerance of the reference's?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from kbench.records import CheckResult
from kbench.worker import tensors
from kbench.worker.checks.results import failed, no_input, passed
from kbench.worker.evidence import Evidence, Leaf

# Elements compared at a time: 16 Mi in float64 are 128 MiB a temporary.
_CHUNK_ELEMENTS = 2**24
# How many times the reference's own error against float64 a candidate may err. A float32 sum in another order errs
# more than torch's: measured over normal draws, eight partial sums 2 times at 1,024 terms and 3.4 at 4,096, one
# term after the other 5.6 and 16; products of float16, bfloat16 or TF32 operands err 850 times and more.
# Beyond the plain tolerance only the first counts as near, below it (small outputs) any float32 order.
_FACTOR, _FACTOR_BELOW = 4.0, 32.0
# By that many times the tolerance as many elements may be off as this many times those of the reference that are off
# by once the tolerance, and a few.
_OFF_FACTOR, _OFF_ANYWAY = 4, 4


@dataclass(frozen=True, slots=True)
class Difference:
    """How two tensors differ: counts of elements, and the worst one by its multiple of the tolerance."""

    outside: int
    worst: int
    max_abs: float
    max_rel: float
    excess: float


def check(evidence: Evidence) -> CheckResult:
    """Compare leaf by leaf: |actual - expected| <= atol + rtol * |expected| in float64.

    Integers, booleans and plain values must be equal, but for ties and where rounding decides
    (`discrete.py`); an infinity matches only itself; NaN was compared before. The absolute part shrinks with
    the output: atol * min(1, rms(expected)), so that zeros do not hide under it. Where either rule is broken,
    the float64 oracle decides. On a variant, which may make outputs larger, the absolute part is
    atol * rms(expected).
    """
    notes: list[str] = []
    for index, (leaf, actual) in enumerate(zip(evidence.expected, evidence.actual, strict=True)):
        if leaf.tensor is None:
            claimed = list(tensors.leaves(evidence.tree))[index][1]
            problem = _compare_plain(leaf, claimed, evidence)
        elif actual is None:
            problem = f"{leaf.path}: nothing was written"
        elif leaf.tensor.is_floating_point() or leaf.tensor.is_complex():
            problem = _compare_floats(leaf, actual, index, evidence, notes)
        else:
            problem = _compare_exactly(leaf, actual, index, evidence, notes)
        if problem:
            return failed("values", problem)
    evidence.notes += notes
    return passed("values", "; ".join(notes))


def _compare_plain(leaf: Leaf, claimed: tensors.Spec, evidence: Evidence) -> str:
    try:
        expected, actual = tensors.scalar(leaf.spec), tensors.scalar(claimed)
    except (ValueError, OverflowError):
        return f"{leaf.path}: not a plain value"
    if isinstance(expected, float) and isinstance(actual, float):
        atol, rtol = evidence.tolerance.default
        if expected == actual or (math.isnan(expected) and math.isnan(actual) and evidence.tolerance.allow_nan):
            return ""
        scaled = atol * min(1.0, abs(expected)) + rtol * abs(expected)
        if math.isfinite(actual) and math.isfinite(expected) and abs(actual - expected) <= scaled:
            return ""
    return "" if expected == actual else f"{leaf.path}: {actual!r} against {expected!r}"


def _compare_exactly(leaf: Leaf, actual: torch.Tensor, index: int, evidence: Evidence, notes: list[str]) -> str:
    expected = leaf.tensor
    assert expected is not None
    wrong = actual != expected
    differing = int(wrong.sum())
    if not differing:
        return ""
    if evidence.undecided is not None:
        wrong = evidence.undecided.wrong(index, actual, expected)
    count = int(wrong.sum())
    open_ones = f"{differing - count} of {actual.numel()} elements at ties or rounding boundaries"
    if not count:
        notes.append(f"{leaf.path}: accepted with other values, as right as the reference's ({open_ones})")
        return ""
    where = wrong.nonzero()[0].tolist()
    got, want = actual[tuple(where)].item(), expected[tuple(where)].item()
    besides = f"; besides, {open_ones} do not count" if differing > count else ""
    return f"{leaf.path}: {count} of {actual.numel()} elements differ, first at {where}: {got} against {want}{besides}"


def _compare_floats(leaf: Leaf, actual: torch.Tensor, index: int, evidence: Evidence, notes: list[str]) -> str:
    expected = leaf.tensor
    assert expected is not None
    atol, rtol = evidence.tolerance.of(leaf.spec["dtype"])
    size = rms(expected)
    plain_atol = atol * max(1.0, size) if evidence.is_variant else atol
    plain = difference(actual, expected, plain_atol, rtol)
    evidence.max_abs_error = _larger(evidence.max_abs_error, plain.max_abs)
    evidence.max_rel_error = _larger(evidence.max_rel_error, plain.max_rel)
    if plain.outside:
        text = _outside(leaf, actual, expected, plain, f"atol={plain_atol:.3g} rtol={rtol:g}")
        return _ask_oracle(leaf, actual, expected, index, evidence, notes, text, tolerance=(plain_atol, rtol), factor=_FACTOR)
    scaled_atol = atol * (size if evidence.is_variant else min(1.0, size))
    scaled = difference(actual, expected, scaled_atol, rtol)
    if scaled.outside:
        rule = f"atol={scaled_atol:.3g} (scaled to the output) rtol={rtol:g}"
        text = _outside(leaf, actual, expected, scaled, rule)
        return _ask_oracle(leaf, actual, expected, index, evidence, notes, text, tolerance=(scaled_atol, rtol), factor=_FACTOR_BELOW)
    return ""


def _ask_oracle(
    leaf: Leaf,
    actual: torch.Tensor,
    expected: torch.Tensor,
    index: int,
    evidence: Evidence,
    notes: list[str],
    text: str,
    *,
    tolerance: tuple[float, float],
    factor: float,
) -> str:
    """Let the float64 run decide: who errs no more than `factor` times the reference, each in units of the tolerance, is right.

    That holds for the worst element and for how many are off, or one that the reference makes badly would pass an error
    in all the others.
    """
    truths = evidence.oracle.outputs()
    truth = truths[index] if truths is not None and index < len(truths) else None
    if truth is None or truth.shape != actual.shape:
        return text
    error, reference_error = difference(actual, truth, *tolerance), difference(expected, truth, *tolerance)
    told = f"max error against float64: candidate {error.max_abs:.3g}, reference {reference_error.max_abs:.3g}"
    off = difference(actual, truth, *(factor * allowed for allowed in tolerance)).outside
    is_near = error.excess <= factor * reference_error.excess and off <= _OFF_FACTOR * reference_error.outside + _OFF_ANYWAY
    if math.isfinite(error.max_abs) and is_near:
        notes.append(f"{leaf.path}: accepted outside the tolerance, as near to a float64 run as the reference ({told})")
        return ""
    return f"{text}; {told}"


def difference(actual: torch.Tensor, expected: torch.Tensor, atol: float, rtol: float) -> Difference:
    """Compare two float tensors of one shape in float64, in chunks; both sides NaN counts as equal."""
    a_flat, e_flat = actual.reshape(-1), expected.reshape(-1)
    outside, worst, max_abs, max_rel, excess = 0, 0, 0.0, 0.0, 0.0
    for start in range(0, a_flat.numel(), _CHUNK_ELEMENTS):
        a, e = _wide(a_flat[start : start + _CHUNK_ELEMENTS]), _wide(e_flat[start : start + _CHUNK_ELEMENTS])
        same = (a == e) | (torch.isnan(a) & torch.isnan(e))
        error = torch.where(same, 0.0, (a - e).abs())
        # Infinity against anything else, and what is left of NaN, is as wrong as can be.
        error = torch.where(torch.isfinite(error), error, math.inf)
        magnitude = torch.where(torch.isfinite(e.abs()), e.abs(), 0.0)
        allowed = atol + rtol * magnitude
        outside += int((error > allowed).sum())
        ratio = torch.where(same, 0.0, error / allowed.clamp_min(1e-300))
        here = float(ratio.max())
        if here > excess:
            excess, worst = here, start + int(ratio.argmax())
        max_abs = max(max_abs, float(error.max()))
        max_rel = max(max_rel, float(torch.where(magnitude > 0, error / magnitude.clamp_min(1e-300), 0.0).max()))
    return Difference(outside, worst, max_abs, max_rel, excess)


def rms(tensor: torch.Tensor) -> float:
    """The root mean square of the finite elements, 0 where there are none."""
    flat = tensor.reshape(-1)
    total, count = 0.0, 0
    for start in range(0, flat.numel(), _CHUNK_ELEMENTS):
        wide = _wide(flat[start : start + _CHUNK_ELEMENTS]).abs()
        finite = torch.isfinite(wide)
        total += float(torch.where(finite, wide, 0.0).square().sum())
        count += int(finite.sum())
    return math.sqrt(total / count) if count else 0.0


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128) if tensor.is_complex() else tensor.to(torch.float64)


def _larger(old: float | None, new: float) -> float:
    return new if old is None else max(old, new)


def _outside(leaf: Leaf, actual: torch.Tensor, expected: torch.Tensor, found: Difference, rule: str) -> str:
    where = [int(i) for i in torch.unravel_index(torch.tensor(found.worst), actual.shape)] if actual.dim() else []
    got, want = actual.reshape(-1)[found.worst].item(), expected.reshape(-1)[found.worst].item()
    cause = no_input(actual.reshape(-1)[found.worst : found.worst + 1])
    return f"{leaf.path}: {found.outside} of {actual.numel()} elements outside {rule}; worst at {where}: {_short(got)} against {_short(want)}{cause}"


def _short(value: object) -> str:
    return f"{value:.7g}" if isinstance(value, float) else str(value)
