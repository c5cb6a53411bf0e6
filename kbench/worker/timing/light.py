"""The speed of light of a task: how fast its work could be done at best, and what is faster than that can be.

Two floors, for two uses. The *floor of the reference's work* (`SpeedOfLight`) is what a candidate is measured
against; a candidate may beat it honestly, where the reference reads what no output needs. Below the *floor of the
needed inputs* (`needed_bytes`) nothing honest can be: those inputs were evicted from the cache, each of their
elements moves an output, and the memory bus is only so wide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kbench.worker import tensors
from kbench.worker.reference import CaseReference
from kbench.worker.seeding import seed_everything
from kbench.worker.timing.ceilings import Ceilings
from kbench.worker.timing.work import Work

# Below this the time is that of a launch, whatever the work.
LATENCY_S = 5e-6
# Faster than a floor by more than this is no measuring error.
MARGIN = 1.03
# What a bus may carry beyond what was seen to pass over it: 1.1 on an H200.
_UNKNOWN_BUS = 1.15
# An element whose share of the outputs is below this part of the mean share might as well be left out.
_SIGNIFICANT = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedOfLight:
    """The least seconds for the reference's work on one GPU, and by what it is bound: `memory`, `compute`, `latency`."""

    seconds: float
    bound: str


def speed_of_light(work: Work, ceilings: Ceilings) -> SpeedOfLight:
    """The floor of a reference's work: the greater of moving its bytes and of its products, one dtype after the other."""
    memory_s = (work.read_bytes + work.written_bytes) / ceilings.bytes_s
    compute_s = sum(flops / rate for dtype, flops in work.flops.items() if (rate := ceilings.flops_of(dtype)))
    seconds = max(memory_s, compute_s)
    if seconds < LATENCY_S:
        return SpeedOfLight(seconds=seconds, bound="latency")
    return SpeedOfLight(seconds=seconds, bound="memory" if memory_s >= compute_s else "compute")


def impossible(reference: CaseReference, args: list[Any], seconds: float, ceilings: Ceilings) -> str:
    """Why a cold call cannot have taken `seconds`, in words; empty where it may have."""
    if not ceilings.bus_bytes_s:
        # What was measured alone may have been measured beside a busy neighbour.
        return ""
    # Some drivers take a clock for another.
    most = max(ceilings.bus_bytes_s, _UNKNOWN_BUS * ceilings.bytes_s)
    # What is not even all of the inputs need not be looked at more closely.
    if sum(map(_bytes, tensors.tensors_in(args))) / most <= MARGIN * seconds:
        return ""
    needed = needed_bytes(reference, args)
    least_s = needed / most
    if least_s <= MARGIN * seconds:
        return ""
    return (
        f"{seconds * 1e6:.3g} us for a cold call that must read {needed / 1e6:.3g} MB of inputs, "
        f"which the memory bus of this GPU carries in {least_s * 1e6:.3g} us at the least"
    )


def needed_bytes(reference: CaseReference, args: list[Any]) -> int:
    """The bytes of float inputs whose every element moves an output, by the reference's gradient; 0 where it has none.

    An element counts where its share |gradient * value| of a random mixture of the outputs is not negligible.
    Inputs that cannot be differentiated (integers) and those of a model that cannot count as not needed.
    """
    try:
        shares = _shares(reference, args)
    except Exception:  # noqa: BLE001 - no gradient, no memory for it: nothing is known to be needed
        return 0
    total = sum(float(share.double().sum()) for share in shares)
    elements = sum(share.numel() for share in shares)
    if not total:
        return 0
    least = _SIGNIFICANT * total / elements
    return sum(int((share > least).sum()) * int(share.element_size()) for share in shares)


def _shares(reference: CaseReference, args: list[Any]) -> list[torch.Tensor]:
    model = reference.reference.construct(reference.case, reference.init)
    given = tensors.map_tensors(tensors.clone(args), lambda t: t.detach().requires_grad_() if t.is_floating_point() else t)
    leaves = [t for t in tensors.tensors_in(given) if t.requires_grad]
    seed_everything(reference.reference.seed(reference.case.name, "light"))
    with torch.enable_grad():
        # A model may write into its inputs, which a leaf that wants a gradient forbids.
        outputs = [o for o in tensors.tensors_in(model(*given)) if o.requires_grad]
        mixture = sum((o * torch.randn_like(o)).sum() for o in outputs)
    gradients = torch.autograd.grad(mixture, leaves, allow_unused=True)  # type: ignore[arg-type]
    return [torch.zeros_like(t) if g is None else (g * t.detach()).abs() for g, t in zip(gradients, leaves, strict=True)]


def _bytes(tensor: torch.Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())
