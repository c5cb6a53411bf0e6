"""Trees of tensors survive the way through shared memory."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kbench.worker import memory, tensors


def through_memory(value: object) -> object:
    layout = tensors.Layout()
    spec = tensors.describe(value, place=layout.place, trusted=True)
    arena = memory.Arena(layout.end_bytes, torch.device("cpu"))
    message, fds = arena.message()
    other_end = memory.open_arena(message, [os.dup(fds[0])], torch.device("cpu"))
    tensors.write_tree(arena.memory, spec, value)
    result = tensors.rebuild(spec, lambda leaf: tensors.view_of(other_end, leaf))
    arena.close()
    return result


def test_nested_values_of_every_kind_arrive_equal() -> None:
    value = [torch.arange(6).reshape(2, 3), (1, 2.5, None, True, "x"), {"a": torch.tensor([True]), 3: []}]

    result = through_memory(value)

    assert torch.equal(result[0], value[0])
    assert result[1] == value[1]
    assert torch.equal(result[2]["a"], value[2]["a"])
    assert result[2][3] == []


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(4, 6).t(),
        torch.randn(3, 1).expand(3, 5),
        torch.randn(8, 8)[::2, 1::3],
        torch.randn(2, 0, 3),
        torch.tensor(3.5),
        torch.randn(5, dtype=torch.complex64),
        torch.randn(3).to(torch.bfloat16),
    ],
)
def test_strides_and_dtypes_arrive_as_they_were(tensor: torch.Tensor) -> None:
    result = through_memory([tensor])[0]

    assert result.stride() == tensor.stride()
    assert result.dtype == tensor.dtype
    assert torch.equal(result, tensor)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), 1e-310, -0.0])
def test_floats_keep_their_bits(value: float) -> None:
    assert tensors.scalar(tensors.describe(value)).hex() == value.hex()


def test_a_sparse_tensor_is_refused_by_name() -> None:
    with pytest.raises(tensors.UnsupportedValue, match="sparse"):
        tensors.describe(torch.eye(2).to_sparse())


def test_a_structure_that_holds_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)

    with pytest.raises(tensors.UnsupportedValue, match="nested"):
        tensors.describe(loop)


def test_leaves_do_not_touch_and_leave_room_for_red_zones() -> None:
    layout = tensors.Layout()
    first = layout.place(torch.zeros(100))
    second = layout.place(torch.zeros(100))

    assert first >= tensors.RED_ZONE_BYTES
    assert second >= first + 400 + tensors.RED_ZONE_BYTES


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["k", "v", "items", "keys", "dtype", "shape", "stride", "device"]), inner),
    max_leaves=12,
)


@given(json_values)
def test_an_untrusted_description_is_parsed_or_refused(claim: object) -> None:
    """Whatever a candidate's process says, the judge meets a ValueError at worst."""
    try:
        spec = tensors.parse_tree(claim)
    except (ValueError, OverflowError):
        return
    list(tensors.leaves(spec))


def test_a_parsed_description_equals_what_was_described() -> None:
    spec = tensors.describe({"z": (torch.zeros(2, 3), 1, None)})
    spec["items"][0]["items"][0]["device"] = "cpu"

    assert tensors.parse_tree(spec) == spec


def test_shared_memory_starts_as_poison_that_no_float_takes_for_a_number() -> None:
    arena = memory.Arena(64, torch.device("cpu"))
    arena.poison()

    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        assert torch.isnan(arena.memory[:64].view(dtype)).all()
    arena.close()


def test_the_other_side_cannot_shrink_shared_memory() -> None:
    """A shorter file would end the judge with SIGBUS."""
    arena = memory.Arena(1 << 16, torch.device("cpu"))

    with pytest.raises(PermissionError):
        os.ftruncate(arena.fd, 0)
    arena.close()
