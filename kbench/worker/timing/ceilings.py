"""What a GPU can do at most, measured once and kept: memory bandwidth, matrix products by dtype, an empty launch.

Kept by GPU and driver in the cache folder. The figures are those of plain torch under the best conditions: long,
large, and sustained, so that a power limit shows as it does in real work.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from kbench import stats
from kbench.worker import cudart

_BANDWIDTH_BYTES = 2**30
_BANDWIDTH_RUNS = 12
# Size of the square matrices, and how long each dtype is kept busy.
_MATRIX = 8192
_MATRIX_S = 0.15
_MATRIX_RUNS = (3, 200)
# Numbers of cudaDeviceGetAttribute (driver_types.h): memory clock in kHz, bus width in bits.
_MEMORY_CLOCK, _BUS_WIDTH = 36, 37
# A double data rate: two transfers a clock.
_TRANSFERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """The most that one GPU was seen to do; `bus_bytes_s` is what its memory bus could carry by its own clock.

    `flops` is by dtype, `tf32` being float32 products in TF32. 0 and a missing dtype are unknown.
    """

    bytes_s: float
    bus_bytes_s: float
    launch_s: float
    l2_bytes: int
    flops: Mapping[str, float] = field(default_factory=dict)

    def flops_of(self, dtype: str) -> float:
        """Operations a second in products of a dtype; 0 where unknown.

        Three TF32 products make one that is as exact as float32's (the split of each factor into two parts), so
        that a third of TF32's rate counts where it is more.
        """
        plain = self.flops.get(dtype, 0.0)
        return max(plain, self.flops.get("tf32", 0.0) / 3) if dtype == "float32" else plain


def of(device: torch.device, cache: Path, driver: str) -> Ceilings:
    """The ceilings of a GPU: those in the cache, or measured now (a second or two) and kept there."""
    properties = torch.cuda.get_device_properties(device)
    path = cache / "ceilings" / f"{getattr(properties, 'uuid', properties.name)}-{driver or 'unknown'}.json".replace("/", "_").replace(" ", "_")
    if (known := _read(path)) is not None:
        return known
    found = measure(device)
    _write(path, found)
    return found


def measure(device: torch.device) -> Ceilings:
    """Measure one GPU that nobody else uses."""
    properties = torch.cuda.get_device_properties(device)
    with torch.cuda.device(device):
        found = Ceilings(
            bytes_s=_bandwidth(device),
            bus_bytes_s=_bus_bytes_s(device),
            launch_s=_launch_s(device),
            l2_bytes=int(properties.L2_cache_size),
            flops={name: rate for name, rate in ((name, _matrix_rate(device, dtype, tf32)) for name, dtype, tf32 in _PRODUCTS) if rate},
        )
        torch.cuda.empty_cache()
    return found


_PRODUCTS = (
    ("float32", torch.float32, False),
    ("tf32", torch.float32, True),
    ("bfloat16", torch.bfloat16, False),
    ("float16", torch.float16, False),
    ("float64", torch.float64, False),
)


def _bandwidth(device: torch.device) -> float:
    """Bytes a second: the better of a copy (which counts twice) and a read of a gigabyte, or of what there is room for."""
    n_bytes = _BANDWIDTH_BYTES
    while True:
        try:
            source = torch.ones(n_bytes // 4, device=device)
            target = torch.empty_like(source)
            break
        except torch.cuda.OutOfMemoryError:
            n_bytes //= 2
    copied_s = _median_s(lambda: target.copy_(source), _BANDWIDTH_RUNS)
    read_s = _median_s(lambda: source.sum(), _BANDWIDTH_RUNS)
    return max(2 * n_bytes / copied_s, n_bytes / read_s)


def _matrix_rate(device: torch.device, dtype: torch.dtype, tf32: bool) -> float:
    """Operations a second in random square products; 0 where there are none or no room for them."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    size = _MATRIX // 4 if dtype == torch.float64 else _MATRIX
    try:
        # Random: products of zeros draw less power, and run faster than any real ones.
        one, other = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
        result = torch.empty(size, size, device=device, dtype=dtype)
        once_s = _median_s(lambda: torch.mm(one, other, out=result), _MATRIX_RUNS[0])
        runs = int(min(max(_MATRIX_S / once_s, _MATRIX_RUNS[0]), _MATRIX_RUNS[1]))
        return 2 * size**3 / _median_s(lambda: torch.mm(one, other, out=result), runs)
    except RuntimeError:
        return 0.0
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _launch_s(device: torch.device) -> float:
    """What a pair of events around an empty kernel reads, the launch hidden behind a sleep."""
    nothing = torch.empty((), device=device)
    return _median_s(lambda: nothing.zero_(), 20, hidden=True)


def _median_s(work: Callable[[], Any], runs: int, *, hidden: bool = False) -> float:
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(runs)]
    work()
    for before, after in events:
        if hidden:
            torch.cuda._sleep(100_000)
        before.record()
        work()
        after.record()
    torch.cuda.synchronize()
    return stats.median([before.elapsed_time(after) * 1e-3 for before, after in events])


def _bus_bytes_s(device: torch.device) -> float:
    values = [cudart.attribute(number, device.index or 0) for number in (_MEMORY_CLOCK, _BUS_WIDTH)]
    return _TRANSFERS * values[0] * 1e3 * values[1] / 8


def _read(path: Path) -> Ceilings | None:
    """Read what is kept; None where nothing is, or nothing sound."""
    try:
        found = Ceilings(**json.loads(path.read_text()))
        numbers = [found.bytes_s, found.bus_bytes_s, found.launch_s, found.l2_bytes, *found.flops.values()]
        return found if all(0 <= number < math.inf for number in numbers) and found.bytes_s else None
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def _write(path: Path, found: Ceilings) -> None:
    """Keep it, whole or not at all; a cache that cannot be written costs a measurement at each run."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(descriptor, "w") as file:
            json.dump(asdict(found), file)
        os.replace(name, path)
    except OSError:
        pass
