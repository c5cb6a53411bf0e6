"""Are the CUDA candidates of mixture_reparam right on this GPU, and how fast? Run it by hand on a machine with one.

    python3 scripts/check_single_launch.py

Draws, outputs and the generator's state against the reference in the same process, CUDA graph replays and other
streams, then wall and graph times. A section that fails is reported and the others go on.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import torch

ROOT = Path(__file__).resolve().parents[1]
CANDIDATES = ("single_launch", "document", "triton")
TOLERANCE = 1e-4
SEEDS = 20

# (samples, components of the model, shape behind the samples): both branches, every kernel, width and tail, both
# sides of the limits (8 components and 256, 512 or 1024 dimensions in registers, 1024 components in a warp), and
# draws that outgrow torch's grid by one and by several passes, samples a grid apart among them.
SHAPES: tuple[tuple[int, int, tuple[int, ...]], ...] = (
    (256, 4, (4, 64)),
    (1, 4, (4, 64)),
    (257, 7, (7, 64)),
    (4096, 4, (4, 64)),
    (256, 100, (100, 64)),
    (256, 4, (4, 1)),
    (1, 2, (2, 1)),
    (256, 4, (4, 33)),
    (256, 4, (4, 1000)),
    (300, 5, (5, 130)),
    (300, 3, (3, 250)),
    (33, 2, (2, 255)),
    (33, 2, (2, 257)),
    (33, 8, (8, 1024)),
    (33, 8, (8, 1028)),
    (33, 9, (9, 64)),
    (33, 33, (33, 1)),
    (65, 100, (100, 1000)),
    (9, 1024, (1024, 20)),
    (9, 1100, (1100, 20)),
    (3001, 8, (8, 256)),
    (100003, 16, (16, 3)),
    (20011, 2, (2, 97)),
    (256, 4, (64,)),
    (1, 1, (1,)),
    (256, 1, (1, 64)),
    (257, 1, (3, 33)),
    (513, 1, (1000,)),
    (5003, 8, (8, 256)),
    (70001, 3, (3, 32)),
    (40000, 4, (4, 64)),
    (9001, 5, (5, 128)),
    (3000, 4, (4, 512)),
    (7, 1, (5000,)),
    (1111, 1, (1, 2049)),
)
LARGE = (65536, 8, (8, 256))


def main() -> int:
    """Run every section; give 1 if one failed."""
    if not torch.cuda.is_available():
        print("error: no CUDA device\nhint: run this on a machine with a GPU", file=sys.stderr)
        return 1
    device = torch.cuda.get_device_properties(0)
    print(f"torch {torch.__version__}, CUDA {torch.version.cuda}, {device.name}, {device.multi_processor_count} SMs")
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", f"{device.major}.{device.minor}")
    started = time.perf_counter()
    reference, candidates = load_modules()
    print(f"built {', '.join(candidates) or 'nothing'} in {time.perf_counter() - started:.1f} s")
    failures = 0
    with torch.no_grad():
        for section in (check_shapes, check_layouts, check_graph, check_streams, time_all):
            try:
                failures += section(reference, candidates)
            except Exception:
                failures += 1
                print(f"{section.__name__}: {traceback.format_exc(limit=-2).strip()}")
    print(f"{failures} failures, {time.perf_counter() - started:.1f} s")
    return int(failures > 0)


def load_modules() -> tuple[ModuleType, dict[str, ModuleType]]:
    """Load the reference, and at the same time those candidates that build."""
    folder = ROOT / "candidates" / "mixture_reparam"
    reference = load_module(ROOT / "references" / "mixture_reparam.py")
    modules: dict[str, ModuleType] = {}
    with ThreadPoolExecutor() as pool:
        loading = {name: pool.submit(load_module, folder / f"{name}.py") for name in CANDIDATES}
        for name, module in loading.items():
            try:
                modules[name] = module.result()
            except Exception as error:
                print(f"{name}: does not load: {str(error)[-2000:]}")
    return reference, modules


def load_module(path: Path) -> ModuleType:
    """Import a file under a name that hides no package."""
    spec = importlib.util.spec_from_file_location(f"checked_{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Pair:
    """The reference and the candidates with one set of weights."""

    def __init__(self, reference: ModuleType, candidates: dict[str, ModuleType], dims: int, components: int) -> None:
        self.reference = reference.Model(dims, components).cuda()
        self.candidates = {name: module.ModelNew(dims, components).cuda() for name, module in candidates.items()}

    def randomise(self) -> None:
        """Give all of them the same new logits."""
        for parameter in self.reference.parameters():
            parameter.normal_()
        for candidate in self.candidates.values():
            candidate.load_state_dict(self.reference.state_dict())

    def compare(self, inputs: list[torch.Tensor], seed: int) -> dict[str, float]:
        """Give the worst error of each candidate in units of the tolerance; infinite for another generator state."""
        expected = run_seeded(self.reference, inputs, seed)
        return {name: worst_error(run_seeded(candidate, inputs, seed), expected) for name, candidate in self.candidates.items()}


def run_seeded(model: torch.nn.Module, inputs: list[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """Run from a fresh seed; the generator's state afterwards is the last of the results."""
    torch.cuda.manual_seed(seed)
    outputs = model(*inputs)
    return [*outputs, torch.cuda.get_rng_state()]


def worst_error(actual: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """Compare outputs and, last, generator states."""
    if not torch.equal(actual[-1], expected[-1]):
        return float("inf")
    worst = 0.0
    for a, e in zip(actual[:-1], expected[:-1], strict=True):
        if a.shape != e.shape or a.dtype != e.dtype or not torch.isfinite(a).all():
            return float("inf")
        error = (a - e).abs() / (TOLERANCE + TOLERANCE * e.abs())
        worst = max(worst, error.max().item() if error.numel() else 0.0)
    return worst


def check_shapes(reference: ModuleType, candidates: dict[str, ModuleType]) -> int:
    """Compare all shapes; the generator starts somewhere else in every trial."""
    print(f"{'worst error / tolerance':32}" + "".join(f"{name:>16}" for name in candidates))
    failures = 0
    for samples, components, shape in (*SHAPES, LARGE):
        trials = 3 if (samples, components, shape) == LARGE else SEEDS
        pair = Pair(reference, candidates, shape[-1], components)
        worst = dict.fromkeys(candidates, 0.0)
        for seed in range(trials):
            if seed % 2:
                pair.randomise()
            inputs = [torch.randn(samples, *shape, device="cuda"), 0.5 * torch.randn(samples, *shape, device="cuda")]
            for name, error in pair.compare(inputs, seed * 0x1_0000_0007).items():
                worst[name] = max(worst[name], error)
        failures += sum(error > 1 for error in worst.values())
        print(f"{f'{samples} {list(shape)} K={components}':32}" + "".join(mark(error) for error in worst.values()))
    return failures


def mark(error: float) -> str:
    """Format a worst error for the table."""
    return f"{error:>12.4f} {'ok ' if error <= 1 else 'BAD'}"


def check_layouts(reference: ModuleType, candidates: dict[str, ModuleType]) -> int:
    """Compare inputs that are not contiguous, misaligned or empty."""
    layouts: dict[str, tuple[int, int, Callable[[], torch.Tensor]]] = {
        "transposed [300, 33]": (33, 1, lambda: torch.randn(33, 300, device="cuda").t()),
        "permuted [300, 4, 33]": (33, 4, lambda: torch.randn(33, 4, 300, device="cuda").permute(2, 1, 0)),
        "permuted [300, 4, 33] K=1": (33, 1, lambda: torch.randn(33, 4, 300, device="cuda").permute(2, 1, 0)),
        "every other [300, 4, 32]": (32, 4, lambda: torch.randn(300, 4, 64, device="cuda")[:, :, ::2]),
        "one float off [30, 4, 64]": (64, 4, lambda: torch.randn(7681, device="cuda")[1:].view(30, 4, 64)),
        "empty [0, 4, 64]": (64, 4, lambda: torch.randn(0, 4, 64, device="cuda")),
    }
    failures = 0
    for name, (dims, components, draw) in layouts.items():
        pair = Pair(reference, candidates, dims, components)
        errors = pair.compare([draw(), draw()], 5)
        failures += sum(error > 1 for error in errors.values())
        print(f"{name:32}" + "".join(mark(error) for error in errors.values()))
    return failures


def check_graph(reference: ModuleType, candidates: dict[str, ModuleType]) -> int:
    """Replay a graph of two forwards three times and compare with the reference's next draws."""
    failures = 0
    for samples, components, shape in ((256, 4, (4, 64)), (3001, 8, (8, 256)), (65, 100, (100, 1000)), (513, 1, (1000,))):
        pair = Pair(reference, {"single_launch": candidates["single_launch"]}, shape[-1], components)
        pair.randomise()
        candidate = pair.candidates["single_launch"]
        inputs = [torch.randn(samples, *shape, device="cuda"), 0.5 * torch.randn(samples, *shape, device="cuda")]
        graph, outputs = capture(lambda model=candidate, given=inputs: model(*given), calls=2)
        torch.cuda.manual_seed(11)
        replayed = []
        for _ in range(3):
            graph.replay()
            replayed += [output.clone() for call in outputs for output in call]
        state = torch.cuda.get_rng_state()
        torch.cuda.manual_seed(11)
        expected = [output for _ in range(6) for output in pair.reference(*inputs)]
        error = worst_error([*replayed, state], [*expected, torch.cuda.get_rng_state()])
        fresh = not torch.equal(replayed[0], replayed[2]) and not torch.equal(replayed[0], replayed[4])
        failures += error > 1 or not fresh
        print(f"{f'graph {samples} {list(shape)}':32}{mark(error)}  {'fresh draws' if fresh else 'THE SAME DRAWS'}")
    return failures


def check_streams(reference: ModuleType, candidates: dict[str, ModuleType]) -> int:
    """Run behind a long kernel on a stream of its own: a launch on another stream would see old inputs."""
    samples, components, shape = 4096, 4, (4, 64)
    pair = Pair(reference, candidates, shape[-1], components)
    errors = dict.fromkeys(candidates, 0.0)
    stream = torch.cuda.Stream()
    for name, candidate in pair.candidates.items():
        inputs = [torch.zeros(samples, *shape, device="cuda") for _ in range(2)]
        fresh = [torch.randn_like(value) for value in inputs]
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            for value, new in zip(inputs, fresh, strict=True):
                value.copy_(new)
            actual = run_seeded(candidate, inputs, 3)
        stream.synchronize()
        errors[name] = worst_error(actual, run_seeded(pair.reference, fresh, 3))
    print(f"{'another stream':32}" + "".join(mark(error) for error in errors.values()))
    return sum(error > 1 for error in errors.values())


def capture(call: Callable[[], object], calls: int) -> tuple[torch.cuda.CUDAGraph, list[object]]:
    """Capture several calls in a row, warmed up on another stream."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = [call() for _ in range(calls)]
    return graph, outputs


def time_all(reference: ModuleType, candidates: dict[str, ModuleType]) -> int:
    """Print wall and graph times of the default and the large case; of the large one also the memory rate."""
    for samples, components, shape in ((256, 4, (4, 64)), LARGE):
        pair = Pair(reference, candidates, shape[-1], components)
        inputs = [torch.randn(samples, *shape, device="cuda"), 0.5 * torch.randn(samples, *shape, device="cuda")]
        elements = 2 * inputs[0].numel() + samples * shape[-1] + samples
        is_large = (samples, components, shape) == LARGE
        print(f"{f'{samples} {list(shape)}':32}{'wall us':>12}{'graph us':>12}{'GB/s':>8}")
        for name, model in (("eager", pair.reference), *pair.candidates.items()):
            try:
                wall_s = wall_time_s(model, inputs, 20 if is_large else 200)
                graph_s = graph_time_s(model, inputs, 5 if is_large else 20)
            except Exception as error:
                print(f"  {name:30}{str(error).splitlines()[0]}")
                continue
            rate = f"{4e-9 * elements / graph_s:8.0f}" if is_large else ""
            print(f"  {name:30}{wall_s * 1e6:12.1f}{graph_s * 1e6:12.2f}{rate}")
    return 0


def wall_time_s(model: torch.nn.Module, inputs: list[torch.Tensor], calls: int) -> float:
    """Give the median time of a call and the synchronisation behind it."""

    def samples_s() -> Iterator[float]:
        for _ in range(calls):
            started = time.perf_counter()
            model(*inputs)
            torch.cuda.synchronize()
            yield time.perf_counter() - started

    for _ in range(10):
        model(*inputs)
    torch.cuda.synchronize()
    return statistics.median(samples_s())


def graph_time_s(model: torch.nn.Module, inputs: list[torch.Tensor], calls: int) -> float:
    """Give the median time of a call within a replayed graph of calls."""
    graph, _ = capture(lambda: model(*inputs), calls)
    samples_s = []
    for _ in range(20):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        samples_s.append(start.elapsed_time(end) * 1e-3 / calls)
    return statistics.median(samples_s)


if __name__ == "__main__":
    sys.exit(main())
