"""How much a reference has to do, counted without doing it: bytes that must move, and floating-point operations.

The reference runs on torch's `meta` device, where tensors have shapes and no data, under a dispatch mode that
sees every operator; in a process of its own (counter.py), because `meta` has torch import its compiler. Where the
reference cannot run there (its shapes depend on data), the judge runs it for real under the same mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kbench.records import Case
from kbench.worker import tensors
from kbench.worker.oracle import DispatchMode
from kbench.worker.reference import Reference, ReferenceFault

# Operators that read only what they pick of their first tensor, and the indices.
_PICKING = frozenset({"index", "index_select", "gather", "embedding", "take", "take_along_dim", "_unsafe_index"})
# Operators that make storage without writing to it.
_EMPTY = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The least that a forward pass must do: each input and weight read once, each output written once.

    `read_bytes` and `written_bytes` are what must pass between the device's memory and the processor;
    `eager_bytes` is what passes where every operator reads and writes for itself. `flops` counts matrix products
    and convolutions by dtype (a multiplication and an addition are two), `elements` those of all other operators.
    `how` is `meta` or `run`.
    """

    read_bytes: int
    written_bytes: int
    eager_bytes: int
    elements: int
    flops: Mapping[str, int] = field(default_factory=dict)
    how: str = "meta"


def count_on_meta(reference: Reference, case: Case) -> Work:
    """Count a case by shapes alone; `reference` is one on the device `meta`.

    Raises:
        Exception: the reference needs data, or a device of its own.
    """
    try:
        with torch.device("meta"):
            model = reference.construct(case, reference.init_args(case))
    except ReferenceFault:
        # What is made of real values is made of them, and moved.
        model = reference.construct(case, reference.init_args(case))
    return _count(model, reference.inputs(case, "timed", 0), how="meta")


def count_by_running(model: Any, args: list[Any]) -> Work:
    """Count a forward pass as it runs."""
    return _count(model, args, how="run")


def _count(model: Any, args: list[Any], *, how: str) -> Work:
    from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: PLC0415 - only this needs it

    device = next((tensor.device for tensor in tensors.tensors_in(args)), torch.device("meta" if how == "meta" else "cpu"))
    # Fused attention has no count of its own everywhere; the plain one is made of matrix products, in the inputs' dtype
    # where it need not be more exact than the fused one.
    reduced = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    try:
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), torch.device(device), Counter() as counter:
            result = model(*args)
    finally:
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(reduced)
    counted: Work = counter.work(tensors.tensors_in(result), how=how)
    return counted


class Counter(DispatchMode):
    """Counts what operators read, write and compute while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self._made: set[int] = set()
        # By storage: the views of it that were read, and the bytes of its own.
        self._read: dict[int, dict[tuple[Any, ...], int]] = {}
        self._sizes: dict[int, int] = {}
        self._written: dict[int, int] = {}
        self._eager_bytes = 0
        self._elements = 0
        self._flops: dict[str, int] = {}
        # A storage that is freed would lend its address to another one.
        self._alive: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ARG002
        result = func(*args, **(kwargs or {}))
        self._see(func, args, kwargs or {}, result)
        return result

    def work(self, outputs: list[torch.Tensor], *, how: str) -> Work:
        """What was counted; `outputs` left the region."""
        written = dict(self._written)
        for tensor in outputs:
            if (key := _storage(tensor)) in self._made:
                written[key] = max(written.get(key, 0), _bytes(tensor))
        read = sum(min(self._sizes[key], sum(views.values())) for key, views in self._read.items())
        return Work(
            read_bytes=read,
            written_bytes=sum(written.values()),
            eager_bytes=self._eager_bytes,
            elements=self._elements,
            flops=dict(self._flops),
            how=how,
        )

    def _see(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        name = func._schema.name.removeprefix("aten::")
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self._alive += made
        if _is_view(func) or (made and not func._schema.is_mutable and all(_storage(m) in map(_storage, given) for m in made)):
            return
        if name not in _EMPTY:
            self._count_reads(name.removesuffix("_"), given, made)
            self._eager_bytes += sum(map(_bytes, [*given, *made]))
        self._count_writes(func, args, made)
        counted = _flops_of(func, args, kwargs, result)
        if counted is None:
            self._elements += max((tensor.numel() for tensor in [*given, *made]), default=0)
        else:
            dtype = tensors.dtype_name(given[0].dtype)
            self._flops[dtype] = self._flops.get(dtype, 0) + counted

    def _count_reads(self, name: str, given: list[torch.Tensor], made: list[torch.Tensor]) -> None:
        for index, tensor in enumerate(given):
            key = _storage(tensor)
            if key in self._made:
                continue
            n_bytes = _bytes(tensor)
            view: tuple[Any, ...] = (tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))
            if name in _PICKING and index == 0:
                # Each time it picks anew.
                n_bytes, view = min(n_bytes, sum(map(_bytes, made))), (*view, len(self._alive))
            self._sizes[key] = tensor.untyped_storage().nbytes()
            self._read.setdefault(key, {})[view] = n_bytes
            self._alive.append(tensor)

    def _count_writes(self, func: Any, args: Any, made: list[torch.Tensor]) -> None:
        self._made.update(map(_storage, made))
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                for tensor in (leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)):
                    key = _storage(tensor)
                    if key in self._read:
                        self._written[key] = max(self._written.get(key, 0), _bytes(tensor))


def _flops_of(func: Any, args: Any, kwargs: Any, result: Any) -> int | None:
    """The operations of a matrix product or convolution by torch's own formulas; None for any other operator."""
    from torch.utils.flop_counter import flop_registry  # noqa: PLC0415 - see above

    formula = flop_registry.get(func._overloadpacket)
    return None if formula is None else int(formula(*args, **kwargs, out_val=result))


def _is_view(func: Any) -> bool:
    """Whether an operator only looks at its argument in another way."""
    returns = func._schema.returns
    return bool(returns) and not func._schema.is_mutable and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _bytes(tensor: torch.Tensor) -> int:
    """The bytes of a tensor's elements, those that stand for many counted once."""
    elements: int = 1
    for size, step in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= size if step else min(size, 1)
    return elements * int(tensor.element_size())
