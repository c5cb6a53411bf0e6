"""What a timed call hands over: the tensors of what it returned, each at its place."""

from __future__ import annotations

import torch

from kbench.worker import tensors
from kbench.worker.timing import slots


def handed_over(result: object, expected: object) -> list[torch.Tensor]:
    """What lies in the judge's memory when `result` was handed over where `expected` was verified."""
    layout = tensors.Layout()
    places = [tensors.describe(tensor, place=layout.place) for tensor in tensors.tensors_in(tensors.leaves_returned(expected))]
    outputs = torch.zeros(layout.end_bytes, dtype=torch.uint8)
    timer = slots.CpuTimer(call=None, inputs=torch.zeros(1, dtype=torch.uint8), outputs=outputs, places=[places])  # type: ignore[arg-type]
    timer.hand_over([result])
    return [tensors.view_of(outputs, place) for place in places]


def test_items_of_a_dict_are_lined_up_by_key() -> None:
    ones, twos = torch.ones(4), torch.full((4,), 2.0)

    first, second = handed_over({"b": [twos], "a": ones}, {"a": ones, "b": [twos]})

    assert torch.equal(first, ones)
    assert torch.equal(second, twos)
