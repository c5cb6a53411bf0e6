"""Memory that a candidate gets is watched: what lies behind a tensor tells whether a store went too far."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest
import torch

from kbench.worker import memory

FILL = 0x55


@pytest.fixture(autouse=True)
def filled_malloc() -> Iterator[None]:
    memory.set_malloc_fill(FILL)
    yield
    memory.set_malloc_fill(0)


def store_behind(tensor: torch.Tensor, *, count: int) -> None:
    """Store `count` zero bytes right after the end of a tensor's storage."""
    end = tensor.untyped_storage().data_ptr() + tensor.untyped_storage().nbytes()
    ctypes.memset(end, 0, count)


# Lengths with room behind them in malloc's rounding: small blocks, and those of a mapping of their own.
@pytest.mark.parametrize("length", [803, 4 * 800 + 3, 1_000_003])
def test_a_store_past_the_end_is_seen(length: int) -> None:
    tensor = torch.empty(length)
    assert not memory.is_written_past(tensor, FILL)

    store_behind(tensor, count=4)

    assert memory.is_written_past(tensor, FILL)


@pytest.mark.parametrize("length", range(300, 332))
def test_an_honest_tensor_of_any_length_is_not_suspected(length: int) -> None:
    tensor = torch.empty(length, dtype=torch.uint8).fill_(7)
    longer = torch.empty(10 * length).fill_(7.0)

    assert not memory.is_written_past(tensor, FILL)
    assert not memory.is_written_past(longer, FILL)


def test_memory_of_an_earlier_call_is_not_suspected() -> None:
    tensor = torch.empty(803)
    store_behind(tensor, count=4)

    assert not memory.is_written_past(tensor, 0x01)
    assert not memory.is_written_past(tensor, 0)


def test_nothing_is_told_of_memory_that_outlives_the_results() -> None:
    kept, own = torch.empty(803), torch.empty(803)
    store_behind(kept, count=4)
    store_behind(own, count=4)
    results = [kept.view(11, 73), own.view(11, 73)]
    del own

    suspects = memory.written_past(results, FILL)
    results.clear()

    assert [index for index, storage in suspects.items() if storage.expired()] == [1]


def test_memory_that_torch_did_not_allocate_is_not_looked_at() -> None:
    borrowed = torch.frombuffer(bytearray(4096), dtype=torch.uint8)

    assert not memory.is_written_past(borrowed, FILL)
