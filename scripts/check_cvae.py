"""Check the CUDA candidates of `cvae` against the reference in one process, and time them (needs a GPU).

    python3 scripts/check_cvae.py

Run it before `kbench time` after a change to a kernel: it looks at more shapes, at capture and at streams,
and takes a minute. A section that fails prints its error, and the next one runs all the same.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import torch

ROOT = Path(__file__).resolve().parent.parent
SEEDS = 20
REPLAYS = 3
FORWARDS = 400
TOLERANCE = 1e-4
# Batch, input, label, hidden, latent. From 4 096 samples on `fused` takes its other path.
SHAPES = [
    (128, 256, 10, 128, 32),
    (1, 256, 10, 128, 32),
    (257, 256, 10, 128, 32),
    (4096, 256, 10, 128, 32),
    (65536, 256, 10, 128, 32),
    (37, 33, 1, 64, 1),
    (65, 1000, 7, 100, 33),
    (100, 256, 10, 100, 64),
    (20001, 33, 7, 100, 33),
    (9001, 1000, 1, 64, 1),
    (16897, 31, 5, 150, 40),
    (8448, 16, 4, 8, 8),
    (12, 2000, 10, 1024, 128),
]
DEFAULT, LARGE = SHAPES[0], SHAPES[4]

Forward = Callable[[], tuple[torch.Tensor, ...]]


def load(path: str) -> ModuleType:
    """Run a file of the tree as a module."""
    spec = importlib.util.spec_from_file_location(path.replace("/", "_").removesuffix(".py"), ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(name: str) -> ModuleType | None:
    """Build a candidate, or say why it does not build."""
    start = time.perf_counter()
    try:
        module = load(f"candidates/cvae/{name}.py")
    except Exception:
        print(f"{name}: does not build\n{traceback.format_exc()[-1500:]}")
        return None
    print(f"{name}: built in {time.perf_counter() - start:.0f} s")
    return module


def pair(reference: ModuleType, candidate: ModuleType, shape: tuple[int, ...]) -> tuple[torch.nn.Module, ...]:
    """Make both models with the same weights."""
    torch.manual_seed(1)
    model = reference.Model(*shape[1:]).cuda()
    other = candidate.ModelNew(*shape[1:]).cuda()
    other.load_state_dict(model.state_dict())
    return model, other


def inputs_of(reference: ModuleType, shape: tuple[int, ...]) -> list[torch.Tensor]:
    """Draw inputs of a shape on the GPU."""
    batch, input_dim, label_dim = shape[:3]
    with torch.device("cuda"):
        return list(reference.get_inputs(batch_size=batch, input_dim=input_dim, label_dim=label_dim))


def seeded(seed: int, forward: Forward) -> tuple[torch.Tensor, torch.Tensor]:
    """Run a forward from a seed; give its outputs as one tensor, and the generator's state after it."""
    torch.cuda.manual_seed(seed)
    return torch.stack(forward()), torch.cuda.get_rng_state()


def check_shape(reference: ModuleType, candidate: ModuleType, shape: tuple[int, ...], *, exact: bool) -> str:
    """Compare one shape over all seeds; `exact` asks for repeatable bits as well."""
    model, other = pair(reference, candidate, shape)
    worst = 0.0
    problems = set()
    for seed in range(SEEDS):
        x, y = inputs_of(reference, shape)
        expected, state = seeded(seed, partial(model, x, y))
        actual, after = seeded(seed, partial(other, x, y))
        error = ((actual - expected).abs() / (1 + expected.abs())).max().item()
        worst = max(worst, error)
        if not error <= TOLERANCE:
            problems.add("VALUES")
        if not torch.equal(state, after):
            problems.add("GENERATOR")
        if exact and any(not torch.equal(actual, seeded(seed, partial(other, x, y))[0]) for _ in range(3)):
            problems.add("NOT REPEATABLE")
    return f"{' '.join(sorted(problems)) or 'ok'}, worst {worst:.1e}"


def check_graph(reference: ModuleType, candidate: ModuleType, shape: tuple[int, ...]) -> str:
    """Replay a captured forward from a seed: each must equal the reference's next forward."""
    model, other = pair(reference, candidate, shape)
    x, y = inputs_of(reference, shape)
    other(x, y)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = other(x, y)
    torch.cuda.manual_seed(7)
    expected = torch.stack([torch.stack(model(x, y)) for _ in range(REPLAYS)])
    state = torch.cuda.get_rng_state()
    torch.cuda.manual_seed(7)
    replays = []
    for _ in range(REPLAYS):
        graph.replay()
        replays.append(torch.stack(outputs))
    actual = torch.stack(replays)
    error = ((actual - expected).abs() / (1 + expected.abs())).max().item()
    fresh = len({tuple(row) for row in actual.tolist()}) == REPLAYS
    generator = torch.equal(state, torch.cuda.get_rng_state())
    verdict = "ok" if error <= TOLERANCE and fresh and generator else "WRONG"
    return f"{verdict}, worst {error:.1e}, fresh {fresh}, generator {generator}"


def check_streams(reference: ModuleType, candidate: ModuleType) -> str:
    """Run two streams at once, many forwards each: all must give the bits of the same forward alone."""
    _, other = pair(reference, candidate, DEFAULT)
    x, y = inputs_of(reference, DEFAULT)
    torch.cuda.manual_seed(3)
    alone = [torch.stack(other(x, y)) for _ in range(FORWARDS)]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(2)]  # type: ignore[no-untyped-call]
    torch.cuda.manual_seed(3)
    together = []
    for i in range(FORWARDS):
        with torch.cuda.stream(streams[i % 2]):
            together.append(torch.stack(other(x, y)))
    torch.cuda.synchronize()
    same = sum(torch.equal(a, b) for a, b in zip(alone, together, strict=True))
    return f"{'ok' if same == FORWARDS else 'WRONG'}, {same} of {FORWARDS} forwards equal"


def wall_us(forward: Forward, calls: int) -> float:
    """Give the median time of one call and its synchronisation, in microseconds."""
    for _ in range(20):
        forward()
    samples: list[float] = []
    for _ in range(calls):
        torch.cuda.synchronize()
        start = time.perf_counter()
        forward()
        torch.cuda.synchronize()
        samples.append(time.perf_counter() - start)
    return statistics.median(samples) * 1e6


def graph_us(forward: Forward, copies: int) -> float:
    """Give the time of one call in a graph of several, launch overhead shared, in microseconds."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side):
        for _ in range(3):
            forward()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(copies):
            forward()
    samples: list[float] = []
    for _ in range(20):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        samples.append(start.elapsed_time(end) * 1e3 / copies)
    return statistics.median(samples)


def time_shape(reference: ModuleType, candidates: dict[str, ModuleType], shape: tuple[int, ...]) -> None:
    """Print wall and graph time of everything at one shape."""
    x, y = inputs_of(reference, shape)
    model = reference.Model(*shape[1:]).cuda()
    models: dict[str, Callable[..., tuple[torch.Tensor, ...]]] = {"eager": model}
    models |= {name: pair(reference, module, shape)[1] for name, module in candidates.items()}
    models["compile"] = torch.compile(model)
    for name, timed in models.items():
        try:
            forward = partial(timed, x, y)
            wall = wall_us(forward, 200)
            graph = graph_us(forward, 20 if shape == DEFAULT else 2)
            print(f"  {name}: wall {wall:.1f} us, graph {graph:.2f} us")
        except Exception as error:
            print(f"  {name}: {type(error).__name__}: {str(error)[:200]}")


def attempt(title: str, check: Callable[[], str]) -> None:
    """Print one line for a check, whatever happens in it."""
    try:
        print(f"{title}: {check()}", flush=True)
    except Exception as error:
        print(f"{title}: {type(error).__name__}: {str(error)[:300]}", flush=True)


def main() -> int:
    """Run every section."""
    if not torch.cuda.is_available():
        print("error: this script needs a CUDA device", file=sys.stderr)
        return 4
    properties = torch.cuda.get_device_properties(0)
    print(f"torch {torch.__version__}, {properties.name}, {properties.multi_processor_count} multiprocessors")
    reference = load("references/cvae.py")
    built = {name: build(name) for name in ("document", "fused")}
    candidates = {name: module for name, module in built.items() if module is not None}
    with torch.no_grad():
        for name, module in candidates.items():
            for shape in SHAPES:
                check = partial(check_shape, reference, module, shape, exact=name == "fused")
                attempt(f"{name} {shape}", check)
        if "fused" in candidates:
            for shape in (DEFAULT, LARGE):
                attempt(f"graph {shape}", partial(check_graph, reference, candidates["fused"], shape))
            attempt("two streams", partial(check_streams, reference, candidates["fused"]))
        for shape in (DEFAULT, LARGE):
            print(f"time {shape}")
            time_shape(reference, candidates, shape)
    return 0


if __name__ == "__main__":
    sys.exit(main())
