"""How exact is a candidate, and is that float32? Its errors against the float64 run, beside the reference's own."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from kbench.worker.checks.values import difference, rms
from kbench.worker.evidence import Evidence
from kbench.worker.oracle import ROUNDINGS

# Significand bits, the hidden one included, of what a float output may be.
_SIGNIFICAND_BITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
# Percentiles are taken over so many elements, evenly spaced.
_SAMPLE = 2**20
# From so many times the reference's rms error on, another arithmetic is looked for; sums in another order stay
# below 32 times (checks/values.py), products of operands rounded to 11 bits begin at 850 times.
_SUSPECT = 64.0
# Errors are those of a rounding when they point where its errors point: cosine between the two.
_ALIKE = 0.9
_SAME = 0.01
# Smaller errors, relative to the output, are not those of 11 bits: one rounding to them errs by 2**-13 (rms).
_LEAST_SIZE = 2.0**-15
# What has fewer bits left than any arithmetic leaves is another result, and zeros are all of a smaller type.
_LEAST_BITS = 6
PLAINLY_WRONG = f"less than {_LEAST_BITS} bits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Errors of one output against float64: absolute, relative to the element, and in units in the last place of its dtype."""

    max_abs: float
    max_rel: float
    rms: float
    ulp_p50: float
    ulp_p99: float
    ulp_max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Of the output where the candidate errs most beside the reference; `arithmetic` is `float32` or what the errors show."""

    output: str
    candidate: Errors
    reference: Errors
    arithmetic: str = "float32"

    @property
    def is_more_accurate(self) -> bool:
        """Whether the candidate errs less than the reference, by rms and at most."""
        return self.candidate.rms < self.reference.rms and self.candidate.max_abs < self.reference.max_abs

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "more_accurate_than_reference": self.is_more_accurate}


def measure(evidence: Evidence, rounded: Callable[[str], list[torch.Tensor | None] | None]) -> Accuracy | None:
    """Measure a call whose outputs have their shapes; None without a float64 run, floats, or finite errors.

    `rounded(name)` is the float64 run with the operands of every product rounded in one of the ways of `oracle.ROUNDINGS`.
    """
    truths = evidence.oracle.outputs()
    if truths is None:
        return None
    found: Accuracy | None = None
    for index, (leaf, actual, truth) in enumerate(zip(evidence.expected, evidence.actual, truths, strict=False)):
        if truth is None or actual is None or leaf.tensor is None or truth.shape != actual.shape or actual.dtype not in _SIGNIFICAND_BITS:
            continue
        if not truth.numel() or not all(bool(torch.isfinite(t).all()) for t in (actual, leaf.tensor, truth)):
            continue
        here = Accuracy(output=leaf.path, candidate=_errors(actual, truth), reference=_errors(leaf.tensor, truth))
        if actual.dtype == torch.float32:
            name = _arithmetic(here, actual, truth, functools.partial(_of_output, rounded, index))
            here = Accuracy(output=here.output, candidate=here.candidate, reference=here.reference, arithmetic=name)
        if found is None or _excess(here) > _excess(found):
            found = here
    return found


def words(accuracy: Accuracy) -> str:
    """One line for people."""
    mine, theirs = accuracy.candidate, accuracy.reference
    text = (
        f"error against float64: at most {mine.max_abs:.2g} (reference {theirs.max_abs:.2g}), "
        f"99 % within {mine.ulp_p99:.3g} ulp (reference {theirs.ulp_p99:.3g})"
    )
    return f"{text}; more accurate than the reference" if accuracy.is_more_accurate else text


def _errors(actual: torch.Tensor, truth: torch.Tensor) -> Errors:
    whole = difference(actual, truth, 0.0, 0.0)
    flat, true = actual.reshape(-1), truth.reshape(-1)
    step = -(-flat.numel() // _SAMPLE)
    error = (flat[::step].double() - true[::step].double()).abs()
    ulps = error / _ulp(true[::step].double(), actual.dtype)
    at = torch.tensor([0.5, 0.99], dtype=torch.float64, device=ulps.device)
    middle, high = torch.quantile(ulps, at).tolist()
    return Errors(
        max_abs=whole.max_abs,
        max_rel=whole.max_rel,
        rms=float(error.square().mean().sqrt()),
        ulp_p50=middle,
        ulp_p99=high,
        ulp_max=float(ulps.max()),
    )


def _ulp(truth: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The distance of neighbours of `dtype` at each value, not below that at its smallest normal number."""
    _, exponent = torch.frexp(truth.abs().clamp_min(torch.finfo(dtype).tiny))
    return torch.ldexp(torch.ones_like(truth), exponent - _SIGNIFICAND_BITS[dtype])


def _excess(accuracy: Accuracy) -> float:
    return accuracy.candidate.rms / max(accuracy.reference.rms, 1e-300)


def _arithmetic(found: Accuracy, actual: torch.Tensor, truth: torch.Tensor, rounded: Callable[[str], torch.Tensor | None]) -> str:
    size = found.candidate.rms / max(rms(truth), 1e-300)
    if found.candidate.rms <= _SUSPECT * found.reference.rms or size < _LEAST_SIZE:
        return "float32"
    bits = round(-math.log2(size * math.sqrt(3.0)))
    for dtype, called in () if bits < _LEAST_BITS else ((torch.bfloat16, "bfloat16"), (torch.float16, "float16")):
        if bool((actual.to(dtype).float() == actual).all()):
            return called
    error = (actual.double() - truth).reshape(-1)
    alike = {name: _cosine(error, (other.double() - truth).reshape(-1)) for name in ROUNDINGS if (other := rounded(name)) is not None}
    best = max(alike.values(), default=0.0)
    if best > _ALIKE:
        # TF32 and float16 round alike where no operand is small.
        return " or ".join(dict.fromkeys(ROUNDINGS[name][0] for name, value in alike.items() if value > best - _SAME))
    return PLAINLY_WRONG if bits < _LEAST_BITS else f"half precision or less (about {bits} bits)"


def _cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    scale = float(one.norm()) * float(other.norm())
    return float(one @ other) / scale if 0.0 < scale < math.inf else 0.0


def _of_output(rounded: Callable[[str], list[torch.Tensor | None] | None], index: int, name: str) -> torch.Tensor | None:
    outputs = rounded(name)
    return outputs[index] if outputs is not None and index < len(outputs) else None
