"""The reference in float64, on the very draws of its float32 run: who is nearer to the truth?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only


class DispatchMode(TorchDispatchMode):  # type: ignore[misc]
    """A mode that costs no imports: to have its compiler skip a mode, torch imports all of it, which takes seconds."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class RecordDraws(DispatchMode):
    """Keeps what every random operator of a run returned."""

    def __init__(self) -> None:
        super().__init__()
        self.draws: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ARG002
        result = func(*args, **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.draws.append(tree_map_only(torch.Tensor, torch.Tensor.clone, result))
        return result


class ReplayDraws(DispatchMode):
    """Answers every random operator with what was recorded, floats widened to float64."""

    def __init__(self, draws: list[Any]) -> None:
        super().__init__()
        self._draws = iter(draws)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ARG002
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **(kwargs or {}))
        drawn = tree_map_only(torch.Tensor, widen, next(self._draws))
        # An in-place operator (`normal_`) writes into its argument.
        if func._schema.is_mutable and isinstance(args[0], torch.Tensor):
            return args[0].copy_(drawn)
        return drawn


def widen(tensor: torch.Tensor) -> torch.Tensor:
    """A float tensor in float64, a complex one in complex128, any other as it is."""
    if tensor.is_floating_point():
        return tensor.double()
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor


class Float64Oracle:
    """Runs `run64` when first asked, on the draws of `run32` where the reference draws; None where that fails."""

    def __init__(self, run32: Callable[[], Any] | None, run64: Callable[[], Any], flatten: Callable[[Any], list[Any]]) -> None:
        self._run32 = run32
        self._run64 = run64
        self._flatten = flatten
        self._outputs: list[torch.Tensor | None] | None = None
        self._asked = False

    def outputs(self) -> list[torch.Tensor | None] | None:
        """See `evidence.Oracle`."""
        if not self._asked:
            self._asked = True
            try:
                self._outputs = self._compute()
            except Exception:  # noqa: BLE001 - a reference that cannot run in float64 has no oracle, that is all
                self._outputs = None
        return self._outputs

    def _compute(self) -> list[torch.Tensor | None]:
        if self._run32 is None:
            result = self._run64()
        else:
            with RecordDraws() as record:
                self._run32()
            with ReplayDraws(record.draws):
                result = self._run64()
        return [leaf if isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex()) else None for leaf in self._flatten(result)]
