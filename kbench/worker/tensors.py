"""Trees of tensors: how they are described in a message and laid out in shared memory.

A *spec* is the JSON form of one value: `{"k": "tensor", "dtype", "shape", "stride", "offset"}`,
`{"k": "seq", "items"}`, `{"k": "dict", "keys", "items"}`, or a plain Python value. Lists and tuples
are one kind: an extension that returns `std::vector<Tensor>` gives a list where eager gives a tuple.
A namedtuple of an input's arrives as one of the same name and fields, whoever has its class.
"""

from __future__ import annotations

import base64
import functools
import io
import pickle
from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import torch

Spec = dict[str, Any]

# Red zones and alignment: torch's own CUDA allocator aligns to 512 bytes, its CPU one to 64.
ALIGNMENT_BYTES = 512
RED_ZONE_BYTES = 512
# A structure that holds itself would never end; this is far above any honest nesting.
DEEPEST = 64
# What may be a key of a dict: JSON and a record have names for these.
KEY_TYPES = (str, int, bool)
# No larger integer is a plain value: a float holds what is less.
_HUGE = 2**1023

_DTYPES: dict[str, torch.dtype] = {str(dtype).removeprefix("torch."): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}


def dtype_name(dtype: torch.dtype) -> str:
    """Name a dtype as specs do: `float32`."""
    return str(dtype).removeprefix("torch.")


def dtype_of(name: object) -> torch.dtype:
    """Find the dtype of a spec.

    Raises:
        ValueError: there is no such dtype.
    """
    if not isinstance(name, str) or name not in _DTYPES:
        raise ValueError(f"no dtype `{str(name)[:40]}`")
    return _DTYPES[name]


class UnsupportedValue(Exception):
    """A value that cannot travel between the processes; the text says which and why."""


def describe(value: object, *, place: Callable[[torch.Tensor], int] | None = None, trusted: bool = False) -> Spec:
    """Describe a value as a spec.

    `place` gives each tensor its byte offset in an arena. With `trusted`, values of other kinds are
    pickled (only the judge does that, towards a candidate); without it they become `other`.

    Raises:
        UnsupportedValue: a tensor has no plain strided storage, or the value refers to itself.
    """
    return _describe(value, place, trusted, 0)


def _describe(value: object, place: Callable[[torch.Tensor], int] | None, trusted: bool, depth: int) -> Spec:
    if depth > DEEPEST:
        raise UnsupportedValue(f"a structure nested more than {DEEPEST} deep")
    if isinstance(value, torch.Tensor):
        return _describe_tensor(value, place)
    if value is None:
        return {"k": "none"}
    if isinstance(value, bool):
        return {"k": "bool", "v": value}
    if type(value) is int:
        return {"k": "int", "v": str(value)} if abs(value) < _HUGE else {"k": "other", "v": "a huge int"}
    if type(value) is float:
        return {"k": "float", "v": value.hex()}
    if type(value) is str:
        return {"k": "str", "v": value}
    if isinstance(value, (list, tuple)):
        items = [_describe(item, place, trusted, depth + 1) for item in value]
        spec = {"k": "seq", "items": items, "tuple": isinstance(value, tuple)}
        return spec if (fields := names_of(value)) is None else {**spec, "name": type(value).__name__, "fields": list(fields)}
    if isinstance(value, dict) and all(type(key) in KEY_TYPES for key in value):
        return {
            "k": "dict",
            "keys": list(value),
            "items": [_describe(item, place, trusted, depth + 1) for item in value.values()],
        }
    if trusted:
        return {"k": "pickle", "v": base64.b64encode(pickle.dumps(value)).decode()}
    return {"k": "other", "v": type(value).__name__[:80]}


def _describe_tensor(tensor: torch.Tensor, place: Callable[[torch.Tensor], int] | None) -> Spec:
    if found := obstacle(tensor):
        raise UnsupportedValue(f"{found}: only strided ones are supported")
    return {
        "k": "tensor",
        "dtype": dtype_name(tensor.dtype),
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "offset": place(tensor) if place else 0,
    }


def obstacle(tensor: torch.Tensor) -> str:
    """What a tensor is that has no plain strided storage, in words; empty for one that has."""
    if tensor.is_nested:
        return "a nested tensor"
    if tensor.is_quantized:
        return "a quantized tensor"
    return "" if tensor.layout is torch.strided else f"a tensor of layout {tensor.layout}"


def names_of(value: object) -> tuple[str, ...] | None:
    """The names that a namedtuple has for its items; None for anything else, and for one whose class does more."""
    fields: tuple[str, ...] | None = getattr(type(value), "_fields", None)
    if not isinstance(value, tuple) or fields is None:
        return None
    return fields if all(name.startswith("_") or name in fields for name in vars(type(value))) else None


@functools.cache
def _namedtuple_of(name: str, fields: tuple[str, ...]) -> Any:
    return namedtuple(name, fields, rename=True)  # type: ignore[misc]  # noqa: PYI024 - the names are those of an input


def like(sequence: Any, items: list[Any]) -> Any:
    """Other items in a list, tuple or namedtuple like this one."""
    if isinstance(sequence, list):
        return items
    return tuple(items) if names_of(sequence) is None else type(sequence)._make(items)


def calculable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or float32 of the same values where torch has no arithmetic for its dtype (float8)."""
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() == 1 else tensor


def rebuild(spec: Spec, view: Callable[[Spec], torch.Tensor]) -> Any:
    """Make the value that a trusted spec describes; `view` makes each tensor."""
    kind = spec["k"]
    if kind == "tensor":
        return view(spec)
    if kind == "seq":
        items = [rebuild(item, view) for item in spec["items"]]
        if "fields" in spec:
            return _namedtuple_of(spec["name"], tuple(spec["fields"]))._make(items)
        return tuple(items) if spec["tuple"] else items
    if kind == "dict":
        return {key: rebuild(item, view) for key, item in zip(spec["keys"], spec["items"], strict=True)}
    if kind == "pickle":
        return pickle.load(io.BytesIO(base64.b64decode(spec["v"])))  # noqa: S301 - only from the judge
    return scalar(spec)


def parse_tree(claim: object, *, depth: int = 0) -> Spec:
    """Take an untrusted description of an output apart and put it together again from known parts.

    Raises:
        ValueError: it is no description.
    """
    if not isinstance(claim, dict) or depth > DEEPEST + 1:
        raise ValueError("no description of a value")
    kind = claim.get("k")
    if kind == "tensor":
        dtype_of(claim.get("dtype"))
        return {
            "k": "tensor",
            "dtype": claim["dtype"],
            "shape": parse_sizes(claim.get("shape")),
            "stride": parse_sizes(claim.get("stride")),
            "offset": 0,
            "device": str(claim.get("device"))[:20],
        }
    if kind in ("seq", "dict"):
        items = claim.get("items")
        if not isinstance(items, list):
            raise ValueError("no list of items")
        parsed = [parse_tree(item, depth=depth + 1) for item in items]
        if kind == "seq":
            return {"k": "seq", "items": parsed, "tuple": bool(claim.get("tuple"))}
        keys = claim.get("keys")
        if not isinstance(keys, list) or len(keys) != len(parsed) or not all(type(key) in KEY_TYPES for key in keys):
            raise ValueError("no keys for the items")
        return {"k": "dict", "keys": keys, "items": parsed}
    if kind == "other":
        return {"k": "other", "v": str(claim.get("v"))[:120]}
    scalar(claim)
    return {"k": kind, "v": claim["v"]} if "v" in claim else {"k": kind}


def parse_sizes(claim: object) -> list[int]:
    """Take an untrusted shape.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(claim, list) or len(claim) > 64 or not all(type(n) is int and abs(n) < 2**62 for n in claim):  # noqa: PLR2004
        raise ValueError("no list of sizes")
    return claim


def scalar(spec: Spec) -> Any:
    """The plain Python value of a leaf.

    Raises:
        ValueError: the spec is no plain value.
    """
    kind, value = spec.get("k"), spec.get("v")
    if kind == "none":
        return None
    if kind == "bool" and isinstance(value, bool):
        return value
    if kind == "int" and isinstance(value, str) and len(value) < 400 and abs(int(value)) < _HUGE:  # noqa: PLR2004 - _HUGE has 308 digits
        return int(value)
    if kind == "float" and isinstance(value, str):
        try:
            return float.fromhex(value)
        except OverflowError:
            raise ValueError(f"no float: {value[:40]}") from None
    if kind == "str" and isinstance(value, str):
        return value
    raise ValueError(f"no plain value: {str(spec)[:80]}")


def leaves(spec: Spec, path: str = "output") -> Iterator[tuple[str, Spec]]:
    """Every leaf of a spec with its path: `output[1]`, `output['z']`."""
    kind = spec.get("k")
    if kind == "seq":
        for index, item in enumerate(spec["items"]):
            yield from leaves(item, f"{path}[{index}]")
    elif kind == "dict":
        for key, item in zip(spec["keys"], spec["items"], strict=True):
            yield from leaves(item, f"{path}[{key}]")
    else:
        yield path, spec


def map_tensors(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same structure with `function` applied to each tensor in lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (list, tuple)):
        return like(value, [map_tensors(item, function) for item in value])
    if isinstance(value, dict):
        return {key: map_tensors(item, function) for key, item in value.items()}
    return value


def leaves_in(value: Any) -> list[Any]:
    """Every leaf of lists, tuples and dicts, in order."""
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves_in(item)]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves_in(item)]
    return [value]


def keys_of(returned: dict[Any, Any]) -> list[Any]:
    """The keys of a dict that a model returned, in an order that does not depend on how it was filled."""
    return sorted(dict.keys(returned), key=lambda key: (1, key, 0) if isinstance(key, str) else (0, "", key))


def values_of(returned: dict[Any, Any]) -> list[Any]:
    """The values of a dict that a model returned, in the order of `keys_of`, without asking methods of a subclass."""
    return [dict.__getitem__(returned, key) for key in keys_of(returned)]


def leaves_returned(value: Any) -> list[Any]:
    """Every leaf of what a model returned, as `candidate.describe_output` lines them up."""
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves_returned(item)]
    if isinstance(value, dict):
        return [leaf for item in values_of(value) for leaf in leaves_returned(item)]
    return [value]


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Every tensor of lists, tuples and dicts, in order."""
    return [leaf for leaf in leaves_in(value) if isinstance(leaf, torch.Tensor)]


def clone(value: Any) -> Any:
    """Private copies of all tensors that keep strides, overlaps and holes."""
    return map_tensors(value, lambda tensor: span(tensor).clone().as_strided(tensor.shape, tensor.stride()))


def write_tree(arena: torch.Tensor, spec: Spec, value: Any, *, shift_bytes: int = 0) -> None:
    """Write the tensors of `value` into a flat arena where `spec` says, strides and holes as they are."""
    given = iter(tensors_in(value))
    for _, leaf in leaves(spec):
        if leaf["k"] == "tensor":
            source = span(next(given))
            flat = {**leaf, "shape": [source.numel()], "stride": [1]}
            view_of(arena, flat, shift_bytes=shift_bytes).copy_(source)


def span_elements(shape: list[int], stride: list[int]) -> int:
    """How many elements of storage a strided tensor reaches over."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


def span(tensor: torch.Tensor) -> torch.Tensor:
    """The flat piece of storage that a tensor reaches over, holes included, as a view of it."""
    count = span_elements(list(tensor.shape), list(tensor.stride()))
    return tensor.as_strided((count,), (1,), tensor.storage_offset())


def aligned(n_bytes: int) -> int:
    """Round up to the arena's alignment."""
    return -(-n_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


class Layout:
    """Hands out byte offsets in an arena, each with a red zone before and after."""

    def __init__(self, start_bytes: int = 0) -> None:
        self.end_bytes = aligned(start_bytes) + RED_ZONE_BYTES

    def place(self, tensor: torch.Tensor) -> int:
        """Reserve room for the storage span of a tensor; its byte offset."""
        elements = span_elements(list(tensor.shape), list(tensor.stride()))
        return self.reserve(elements * tensor.element_size())

    def reserve(self, n_bytes: int) -> int:
        """Reserve room for `n_bytes`; its byte offset."""
        offset = self.end_bytes
        self.end_bytes = aligned(offset + n_bytes) + RED_ZONE_BYTES
        return offset


def view_of(memory: torch.Tensor, spec: Spec, *, shift_bytes: int = 0) -> torch.Tensor:
    """The tensor of a spec inside a flat uint8 arena, `shift_bytes` further on."""
    dtype = dtype_of(spec["dtype"])
    offset = spec["offset"] + shift_bytes
    if offset % dtype.itemsize:
        raise ValueError(f"offset {offset} does not fit {spec['dtype']}")
    empty = torch.empty(0, dtype=dtype, device=memory.device)
    return empty.set_(memory.untyped_storage(), offset // dtype.itemsize, tuple(spec["shape"]), tuple(spec["stride"]))
