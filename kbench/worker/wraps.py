"""Baselines: the reference under torch's own accelerators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _compile(model: Any) -> Any:
    return torch.compile(model)


def _compile_max_autotune(model: Any) -> Any:
    return torch.compile(model, mode="max-autotune")


class _Graphed:
    """Replays a CUDA graph of the model, captured anew for each set of shapes; inputs are copied in."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._graphs: dict[tuple[Any, ...], tuple[Any, list[torch.Tensor], Any]] = {}

    def __call__(self, *args: Any) -> Any:
        key = tuple((tuple(a.shape), a.dtype) if isinstance(a, torch.Tensor) else a for a in args)
        if key not in self._graphs:
            self._graphs[key] = self._capture(args)
        graph, places, outputs = self._graphs[key]
        tensors = (a for a in args if isinstance(a, torch.Tensor))
        for place, given in zip(places, tensors, strict=True):
            place.copy_(given)
        graph.replay()
        return torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.clone, outputs)

    def _capture(self, args: tuple[Any, ...]) -> tuple[Any, list[torch.Tensor], Any]:
        own = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._model(*own)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = self._model(*own)
        return graph, [a for a in own if isinstance(a, torch.Tensor)], outputs


WRAPS: dict[str, Callable[[Any], Any]] = {
    "@compile": _compile,
    "@compile-max-autotune": _compile_max_autotune,
    "@cudagraph": _Graphed,
}
