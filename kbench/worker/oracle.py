"""The reference in float64, on the very draws of its float32 run: who is nearer to the truth?"""

from __future__ import annotations

import contextlib
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


def _truncated(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.float().contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32).double()


def _to_tf32(tensor: torch.Tensor) -> torch.Tensor:
    return ((tensor.float().contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32).double()


# What a kernel may round the operands of a product to: what that is called, and how. Tensor cores ignore the bits that
# TF32 has not, unless a kernel rounds before (PTX ISA, mma: .tf32).
ROUNDINGS: dict[str, tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "tf32": ("TF32", _to_tf32),
    "tf32_truncated": ("TF32", _truncated),
    "bfloat16": ("bfloat16", lambda tensor: tensor.bfloat16().double()),
    "float16": ("float16", lambda tensor: tensor.half().double()),
}
# Operators that multiply and add, and where their factors are among the arguments.
_PRODUCTS = {
    "mm": (0, 1),
    "bmm": (0, 1),
    "mv": (0, 1),
    "dot": (0, 1),
    "addmm": (1, 2),
    "addmv": (1, 2),
    "baddbmm": (1, 2),
    "convolution": (0, 1),
    "_convolution": (0, 1),
    "linear": (0, 1),
    "matmul": (0, 1),
}


class RoundOperands(TorchDispatchMode):  # type: ignore[misc]
    """Rounds both factors of every product in a float64 run."""

    def __init__(self, rounding: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self._rounding = rounding

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ARG002
        given = list(args)
        for place in _PRODUCTS.get(func.overloadpacket.__name__, ()):
            if place < len(given) and isinstance(given[place], torch.Tensor) and given[place].dtype == torch.float64:
                given[place] = self._rounding(given[place])
        return func(*given, **(kwargs or {}))


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
        self._leaves: list[Any] = []
        self._asked = False
        self._draws: list[Any] = []

    def rounded(self, name: str) -> list[torch.Tensor | None] | None:
        """The same run with the operands of every product rounded in one of the ways of `ROUNDINGS`; None where that fails."""
        if self.outputs() is None:
            return None
        try:
            with RoundOperands(ROUNDINGS[name][1]), ReplayDraws(self._draws) if self._run32 is not None else contextlib.nullcontext():
                return self._floats_in(self._run64())
        except Exception:  # noqa: BLE001 - then the errors are not told by their kind
            return None

    def outputs(self) -> list[torch.Tensor | None] | None:
        """See `evidence.Oracle`."""
        if not self._asked:
            self._asked = True
            try:
                self._outputs = self._compute()
            except Exception:  # noqa: BLE001 - a reference that cannot run in float64 has no oracle, that is all
                self._outputs = None
        return self._outputs

    def leaves(self) -> list[Any]:
        """Every leaf of the float64 run, whatever it is; none where there is no oracle."""
        self.outputs()
        return self._leaves

    def _compute(self) -> list[torch.Tensor | None]:
        if self._run32 is None:
            result = self._run64()
        else:
            with RecordDraws() as record:
                self._run32()
            self._draws = record.draws
            with ReplayDraws(record.draws):
                result = self._run64()
        self._leaves = self._flatten(result)
        return self._floats_in(result)

    def _floats_in(self, result: Any) -> list[torch.Tensor | None]:
        return [leaf if isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex()) else None for leaf in self._flatten(result)]
