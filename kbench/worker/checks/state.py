"""Are the parameters and buffers that the reference has as it leaves its own?"""

from __future__ import annotations

import torch

from kbench.records import CheckResult
from kbench.worker.checks.results import failed, passed
from kbench.worker.checks.values import difference, rms
from kbench.worker.evidence import Evidence, Tolerance

# How far from the reference's a weight may be, of the way that the reference moved it; the sizes of both are rms.
_OF_THE_WAY = 0.25
# A shorter way, in units of rounding, tells nothing.
_STEPS = 100
_PART = ": what it changes of its weights is part of its result"


def check(evidence: Evidence) -> CheckResult:
    """Fail where a call wrote to weights that the reference does not change."""
    if evidence.state_changed:
        return failed("state", f"the call changed {', '.join(evidence.state_changed[:4])}")
    return passed("state")


def kept(name: str, actual: torch.Tensor | None, given: torch.Tensor) -> str:
    """What is wrong with a weight that the reference never changes: empty where it has the bits that it was given."""
    if actual is None:
        return f"{name} is no longer there, or of another shape"
    return "" if torch.equal(_bits(actual), _bits(given)) or torch.equal(actual, given) else f"the calls changed {name}"


def is_count(tensor: torch.Tensor) -> bool:
    """Whether a weight holds one whole number, as `num_batches_tracked` does."""
    return tensor.numel() == 1 and not tensor.is_floating_point() and not tensor.is_complex()


def follows(name: str, actual: torch.Tensor | None, expected: torch.Tensor, given: torch.Tensor, tolerance: Tolerance) -> str:
    """What is wrong with a weight that the reference changed from what it was given to what is expected; empty where nothing is.

    Within tolerance of the reference's is not enough: a running mean of small values may be that near to where it began.
    """
    if actual is None:
        return f"{name} is no longer there, or of another shape"
    if not (expected.is_floating_point() or expected.is_complex()):
        differing = int((actual != expected).sum())
        return f"{name} after the calls: {differing} of {expected.numel()} elements are not as the reference leaves them{_PART}" if differing else ""
    atol, rtol = tolerance.of(str(expected.dtype).removeprefix("torch."))
    found = difference(actual, expected, atol * max(1.0, rms(expected)), rtol)
    is_behind = False
    if not found.outside:
        wide = [tensor.to(torch.complex128 if tensor.is_complex() else torch.float64) for tensor in (actual, expected, given)]
        way, off = rms(wide[1] - wide[2]), rms(wide[0] - wide[1])
        is_behind = way > _STEPS * torch.finfo(expected.dtype).eps * rms(expected) and off > _OF_THE_WAY * way
    if not found.outside and not is_behind:
        return ""
    got, want = actual.reshape(-1)[found.worst].item(), expected.reshape(-1)[found.worst].item()
    count = f"{found.outside} of {expected.numel()} elements are" if found.outside else "it is"
    return f"{name} after the calls: {count} not as the reference leaves it, most of all {got:.6g} against {want:.6g}{_PART}"


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)
