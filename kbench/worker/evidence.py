"""What a check may look at: the facts of one call, as the judge has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch

from kbench.records import CheckResult
from kbench.worker import tensors

if TYPE_CHECKING:
    from kbench.worker.discrete import Undecided


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How near is near enough; `atol` and `rtol` for each float dtype, by name."""

    by_dtype: Mapping[str, tuple[float, float]]
    default: tuple[float, float]
    allow_nan: bool = False

    def of(self, dtype: str) -> tuple[float, float]:
        """The absolute and relative tolerance for a dtype."""
        return self.by_dtype.get(dtype, self.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One leaf of the expected output: a tensor of the judge's own, or a plain value (`tensor` is None).

    What the reference leaves in an input that it writes into is part of its result, too; `input` is then the number
    of that tensor among the inputs.
    """

    path: str
    spec: tensors.Spec
    tensor: torch.Tensor | None = None
    input: int | None = None


class Oracle(Protocol):
    """Runs the reference in float64 on the inputs and draws of one call."""

    def outputs(self) -> list[torch.Tensor | None] | None:
        """Each leaf in float64, None for what is no float tensor; None where there is no oracle."""


@dataclass(slots=True, kw_only=True)
class Evidence:
    """One call of a candidate.

    `tree`, `inputs_reformed`, `generators`, `state_changed`, `globals_changed` and `cuda_error` are claims of the
    candidate's process. `actual` are copies that the judge took of its own memory, None where the
    candidate gave nothing that fits. `undecided` knows other right answers of outputs that are no floats. With
    `is_variant` the absolute tolerance grows with the output, too.
    What the call left in inputs that the reference writes into follows what it returned, in `expected` and `actual`.
    `written_outside` names where memory around inputs and outputs changed.
    """

    expected: list[Leaf]
    expected_tree: tensors.Spec
    tree: tensors.Spec
    actual: list[torch.Tensor | None]
    tolerance: Tolerance
    oracle: Oracle
    undecided: Undecided | None = None
    is_variant: bool = False
    inputs_changed: list[str] = field(default_factory=list)
    inputs_reformed: list[str] = field(default_factory=list)
    written_outside: list[str] = field(default_factory=list)
    expected_generators: Mapping[str, str] = field(default_factory=dict)
    generators: Mapping[str, Any] = field(default_factory=dict)
    state_changed: list[str] = field(default_factory=list)
    globals_changed: list[str] = field(default_factory=list)
    cuda_error: str = ""
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def returned(self) -> list[Leaf]:
        """Of what is expected, the leaves that the reference returns."""
        return [leaf for leaf in self.expected if leaf.input is None]


class Check(Protocol):
    """A check: one question asked of the evidence."""

    def __call__(self, evidence: Evidence, /) -> CheckResult:
        """Answer it."""
