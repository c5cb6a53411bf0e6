"""The kernels of corpus/*.cu: with what each is called, what must come out, and what is wrong with the faulty ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

# Output memory that a kernel must write: the pattern that the runtime takes for memory that nobody has written.
_UNWRITTEN = 0x7FB37FB3

Argument = Tensor | int


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One function of the corpus. `outputs` are the places among its arguments that it writes."""

    file: str
    name: str
    arguments: Callable[[], Sequence[Argument]]
    outputs: tuple[int, ...]
    expected: Callable[..., Sequence[Tensor]]
    tolerance: float = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """One faulty function: `reason` is what must be found, at a line marked with its name."""

    name: str
    arguments: Callable[[], Sequence[Argument]]
    reason: str
    file: str = "faults"


def unwritten(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Memory as a device hands it out."""
    size = torch.empty(shape, dtype=dtype).nbytes
    words = torch.full(((size + 3) // 4,), _UNWRITTEN, dtype=torch.int32)
    return words.view(torch.uint8)[:size].clone().view(dtype).reshape(shape)


def random(*shape: int) -> Tensor:
    """Standard normal numbers, the same in every run."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def integers(*shape: int, low: int = 0, high: int = 10) -> Tensor:
    """Integers of 32 bits, the same in every run."""
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.int32)


def _mixture() -> Sequence[Argument]:
    return (random(3, 5, 64).abs() + 0.1, integers(3, high=4).long(), random(3, 64), unwritten(3, 64), unwritten(3))


def _rms_norm(x: Tensor, gain: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6) * gain


def _count(keys: Tensor, distinct: int) -> Tensor:
    return torch.bincount(keys.long(), minlength=distinct).to(torch.int32)


def _smoothed(x: Tensor) -> Tensor:
    padded = functional.pad(x[None, None], (1, 1, 1, 1), mode="replicate")
    cross = torch.tensor([[0, 1, 0], [1, 1, 1], [0, 1, 0]]) * 0.2
    return functional.conv2d(padded, cross[None, None])[0, 0]


def _philox_normals(count: int, seed: int) -> Tensor:
    """Philox and Box-Muller once more, in Python's integers."""
    mask, values = 0xFFFFFFFF, []
    for thread in range(count // 4):
        c, key = [0, 0, thread, 0], [seed, 0]
        for _ in range(10):
            even, odd = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [(odd >> 32) ^ c[1] ^ key[0], odd & mask, (even >> 32) ^ c[3] ^ key[1], even & mask]
            key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
        words = torch.tensor(c, dtype=torch.float64)
        radius = torch.sqrt(-2 * torch.log((words[::2] + 0.5) / 2**32))
        angle = (words[1::2] + 0.5) / 2**32 * 2 * torch.pi
        values.append(torch.stack([radius * torch.sin(angle), radius * torch.cos(angle)], 1).flatten())
    return torch.cat(values).float()


def _spaces() -> Tensor:
    other = 63 - torch.arange(64)
    table = torch.tensor([[1.0, 2, 3], [4, 5, 6]])
    return (other % 4 + 1) + 10 * table[other % 2, other % 3] + 700


def _votes() -> Tensor:
    lanes = list(range(32))

    def inside(lane: int, source: int, width: int) -> int:
        return source if 0 <= source and source // width == lane // width else lane

    rows = [
        [sum(1 << lane for lane in lanes if lane % 3 == 0)] * 32,
        [1] * 32,
        [0] * 32,
        [0xFF << lane // 8 * 8 for lane in lanes],
        [0xFFFFFFFF] * 32,
        [1] * 32,
        [2 * (lane // 8 * 8 + (lane + 1) % 8) for lane in lanes],
        [inside(lane, lane - 3, 16) for lane in lanes],
        [inside(lane, lane + 5, 16) for lane in lanes],
        [lane ^ 9 for lane in lanes],
        [sum(lanes)] * 32,
        [-5] * 32,
        [0] * 32,
        [16] * 32,
        [1] * 32,
        [0] * 32,
        [15 - lane if lane < 16 else 1 for lane in lanes],
    ]
    return torch.tensor(rows).to(torch.int32)


def _atomics() -> Sequence[Tensor]:
    total = 64 * 65 // 2
    return (
        torch.tensor([total, -total, -64, 64, ~0x7F, 0x7F, 64, 77, total], dtype=torch.int32),
        torch.tensor([64 % 10, 10 - 64 % 10, -(2**31) + 64], dtype=torch.int32),
        torch.tensor([64 * 2**33, 64 * 2**40, 5]),
        torch.tensor([32.0]),
        torch.tensor([16.0], dtype=torch.float64),
    )


def _arithmetic() -> Sequence[Tensor]:
    floats = [0.25, 2.7182817, 0.6931472, 1.4142135, 0.8414710, 0.5, 1.4142135, 10, 1, 2, 2.5, 0.4275836, 0.5, 100, 1.5]
    floats += [0.0999756, 6.5, 0.1000977, 26.5, 11]
    integers = [8, 31, 4, 1, 2, -2, 0x3F800000, 3, 0x05010400, 3, 15, 15, 7, 8]
    return torch.tensor(floats), torch.tensor(integers, dtype=torch.int32)


KERNELS: Sequence[Kernel] = (
    Kernel(
        file="language",
        name="language_shapes",
        arguments=lambda: (unwritten(12, 24, dtype=torch.int32),),
        outputs=(0,),
        expected=lambda *_: ((1000 * torch.arange(12)[:, None] + torch.arange(24)).int(),),
    ),
    Kernel(file="language", name="language_spaces", arguments=lambda: (unwritten(64),), outputs=(0,), expected=lambda *_: (_spaces(),)),
    Kernel(
        file="language",
        name="language_votes",
        arguments=lambda: (unwritten(17, 32, dtype=torch.int32),),
        outputs=(0,),
        expected=lambda *_: (_votes(),),
    ),
    Kernel(
        file="language",
        name="language_atomics",
        arguments=lambda: (
            unwritten(9, dtype=torch.int32),
            unwritten(3, dtype=torch.int32),
            unwritten(3, dtype=torch.int64),
            unwritten(1),
            unwritten(1, dtype=torch.float64),
        ),
        outputs=(0, 1, 2, 3, 4),
        expected=lambda *_: _atomics(),
    ),
    Kernel(
        file="language",
        name="language_arithmetic",
        arguments=lambda: (unwritten(20), unwritten(14, dtype=torch.int32), torch.full((1,), 8, dtype=torch.int32)),
        outputs=(0, 1),
        expected=lambda *_: _arithmetic(),
        # As a device rounds the fast intrinsics.
        tolerance=1e-4,
    ),
    Kernel(
        file="reductions",
        name="reduce_shared_tree",
        arguments=lambda: (random(5, 300), unwritten(5), 5, 300),
        outputs=(1,),
        expected=lambda x, *_: (x.sum(1),),
    ),
    Kernel(
        file="reductions",
        name="reduce_shuffle",
        arguments=lambda: (random(3, 1000), unwritten(3), 3, 1000),
        outputs=(1,),
        expected=lambda x, *_: (x.sum(1),),
    ),
    Kernel(
        file="reductions",
        name="reduce_grid_stride",
        arguments=lambda: (random(1777), unwritten(1), 1777),
        outputs=(1,),
        expected=lambda x, *_: (x.sum()[None],),
    ),
    Kernel(
        file="reductions",
        name="reduce_last_block",
        arguments=lambda: (random(999), unwritten(7), unwritten(1), 999),
        outputs=(2,),
        expected=lambda x, *_: (x.sum()[None],),
    ),
    Kernel(
        file="reductions",
        name="reduce_warp_per_row",
        arguments=lambda: (random(8, 70).double(), unwritten(8, dtype=torch.float64), 8, 70),
        outputs=(1,),
        expected=lambda x, *_: (x.sum(1),),
        tolerance=1e-12,
    ),
    Kernel(
        file="reductions",
        name="reduce_atomic_max",
        arguments=lambda: (random(700), unwritten(1), unwritten(1), 700),
        outputs=(2,),
        expected=lambda x, *_: (x.max()[None],),
    ),
    Kernel(
        file="reductions",
        name="reduce_dot_float4",
        arguments=lambda: (random(1024), random(1024) + 1, unwritten(1), 1024),
        outputs=(2,),
        expected=lambda a, b, *_: ((a * b).sum()[None],),
        tolerance=1e-3,
    ),
    Kernel(
        file="reductions",
        name="reduce_counts",
        arguments=lambda: (
            integers(500, low=-9),
            unwritten(1, dtype=torch.int32),
            unwritten(1, dtype=torch.int32),
            500,
        ),
        outputs=(1, 2),
        expected=lambda x, *_: ((x > 0).sum()[None].int(), x.sum()[None].int()),
    ),
    Kernel(
        file="scans",
        name="scan_hillis_steele",
        arguments=lambda: (random(3, 100), unwritten(3, 100), 3, 100),
        outputs=(1,),
        expected=lambda x, *_: (x.cumsum(1),),
    ),
    Kernel(
        file="scans",
        name="scan_blelloch",
        arguments=lambda: (random(256), unwritten(256)),
        outputs=(1,),
        expected=lambda x, *_: (x.cumsum(0) - x,),
    ),
    Kernel(
        file="scans",
        name="scan_shuffle",
        arguments=lambda: (integers(1000), unwritten(1000, dtype=torch.int32), 1000),
        outputs=(1,),
        expected=lambda x, *_: (x.cumsum(0).int(),),
    ),
    Kernel(
        file="scans",
        name="scan_chained",
        arguments=lambda: (
            random(777),
            unwritten(777),
            unwritten(13),
            unwritten(13, dtype=torch.int32),
            unwritten(1, dtype=torch.int32),
            777,
        ),
        outputs=(1,),
        expected=lambda x, *_: (x.cumsum(0),),
    ),
    Kernel(
        file="scans",
        name="scan_compact",
        arguments=lambda: (
            integers(250),
            torch.full((256,), -1, dtype=torch.int32),
            unwritten(1, dtype=torch.int32),
            250,
        ),
        outputs=(1, 2),
        expected=lambda x, *_: (
            functional.pad(x[x % 3 == 0], (0, 256 - int((x % 3 == 0).sum())), value=-1),
            (x % 3 == 0).sum()[None].int(),
        ),
    ),
    Kernel(
        file="norms",
        name="softmax_block",
        arguments=lambda: (random(4, 500), unwritten(4, 500), 4, 500),
        outputs=(1,),
        expected=lambda x, *_: (x.softmax(1),),
    ),
    Kernel(
        file="norms",
        name="softmax_online",
        arguments=lambda: (random(6, 45), unwritten(6, 45), 6, 45),
        outputs=(1,),
        expected=lambda x, *_: (x.softmax(1),),
    ),
    Kernel(
        file="norms",
        name="layer_norm",
        arguments=lambda: (random(3, 130), random(130), random(130), unwritten(3, 130), 3, 130),
        outputs=(3,),
        expected=lambda x, gain, bias, *_: (functional.layer_norm(x, (130,), gain, bias),),
    ),
    Kernel(
        file="norms",
        name="rms_norm_float4",
        arguments=lambda: (random(3, 256), random(256), unwritten(3, 256), 3, 256),
        outputs=(2,),
        expected=lambda x, gain, *_: (_rms_norm(x, gain),),
    ),
    Kernel(
        file="norms",
        name="batch_statistics",
        arguments=lambda: (random(77, 5), unwritten(5), unwritten(5), 77, 5),
        outputs=(1, 2),
        expected=lambda x, *_: (x.mean(0), x.var(0, unbiased=False)),
    ),
    Kernel(
        file="norms",
        name="argmax_rows",
        arguments=lambda: (random(5, 300), unwritten(5, dtype=torch.int64), 5, 300),
        outputs=(1,),
        expected=lambda x, *_: (x.argmax(1),),
    ),
    Kernel(
        file="norms",
        name="cross_entropy",
        arguments=lambda: (random(100, 7), integers(100, high=7).long(), unwritten(1), 100, 7),
        outputs=(2,),
        expected=lambda x, labels, *_: (functional.cross_entropy(x, labels)[None],),
    ),
    Kernel(
        file="matrices",
        name="matmul_tiled",
        arguments=lambda: (random(33, 50), random(50, 21), unwritten(33, 21), 33, 21, 50),
        outputs=(2,),
        expected=lambda a, b, *_: (a @ b,),
    ),
    Kernel(
        file="matrices",
        name="matmul_registers",
        arguments=lambda: (random(64, 32), random(32, 64), unwritten(64, 64), 64, 64, 32),
        outputs=(2,),
        expected=lambda a, b, *_: (a @ b,),
    ),
    Kernel(
        file="matrices",
        name="matmul_float4",
        arguments=lambda: (random(16, 32), random(32, 64), unwritten(16, 64), 16, 64, 32),
        outputs=(2,),
        expected=lambda a, b, *_: (a @ b,),
    ),
    Kernel(
        file="matrices",
        name="linear_relu",
        arguments=lambda: (random(10, 70), random(3, 70), random(10), unwritten(3, 10), 3, 10, 70),
        outputs=(3,),
        expected=lambda w, x, bias, *_: (functional.linear(x, w, bias).relu(),),
    ),
    Kernel(
        file="matrices",
        name="transpose_padded",
        arguments=lambda: (random(40, 70), unwritten(70, 40), 40, 70),
        outputs=(1,),
        expected=lambda x, *_: (x.T,),
    ),
    Kernel(
        file="matrices",
        name="permute_3d",
        arguments=lambda: (integers(3, 10, 17), unwritten(17, 10, 3, dtype=torch.int32), 3, 10, 17),
        outputs=(1,),
        expected=lambda x, *_: (x.permute(2, 1, 0),),
    ),
    Kernel(
        file="matrices",
        name="conv1d_halo",
        arguments=lambda: (random(300), random(5), unwritten(300), 300),
        outputs=(2,),
        expected=lambda x, w, *_: (functional.conv1d(x[None, None], w[None, None], padding=2)[0, 0],),
    ),
    Kernel(
        file="matrices",
        name="conv2d_constant",
        arguments=lambda: (random(2, 9, 20), random(3, 3), unwritten(2, 9, 20), 2, 9, 20),
        outputs=(2,),
        expected=lambda x, w, *_: (functional.conv2d(x[:, None], w[None, None], padding=1)[:, 0],),
    ),
    Kernel(
        file="matrices",
        name="attention_online",
        arguments=lambda: (random(3, 32), random(100, 32), random(100, 32) + 1, unwritten(3, 32), 3, 100, 32),
        outputs=(3,),
        expected=lambda q, k, v, *_: (functional.scaled_dot_product_attention(q[None], k[None], v[None])[0],),
    ),
    Kernel(
        file="memory",
        name="histogram_shared",
        arguments=lambda: (integers(3000, high=200).to(torch.uint8), unwritten(256, dtype=torch.int32), 3000),
        outputs=(1,),
        expected=lambda x, *_: (_count(x, 256),),
    ),
    Kernel(
        file="memory",
        name="sort_bitonic",
        arguments=lambda: (random(2, 256), 2),
        outputs=(0,),
        expected=lambda x, *_: (x.sort(1).values,),
    ),
    Kernel(
        file="memory",
        name="sort_odd_even",
        arguments=lambda: (integers(64, high=1000),),
        outputs=(0,),
        expected=lambda x: (x.sort().values,),
    ),
    Kernel(
        file="memory",
        name="stencil_2d",
        arguments=lambda: (random(11, 40), unwritten(11, 40), 11, 40),
        outputs=(1,),
        expected=lambda x, *_: (_smoothed(x),),
    ),
    Kernel(
        file="memory",
        name="gather_rows",
        arguments=lambda: (random(10, 50), integers(6), unwritten(6, 50), 6, 50),
        outputs=(2,),
        expected=lambda table, rows, *_: (table[rows.long()],),
    ),
    Kernel(
        file="memory",
        name="scatter_add",
        arguments=lambda: (
            random(20, 40),
            integers(20, high=4),
            unwritten(4, 40),
            unwritten(4, dtype=torch.int32),
            20,
            40,
            4,
        ),
        outputs=(2, 3),
        expected=lambda x, rows, *_: (torch.zeros(4, 40).index_add(0, rows.long(), x), _count(rows, 4)),
    ),
    Kernel(
        file="memory",
        name="half_axpy",
        arguments=lambda: (random(201).half(), random(201).half(), unwritten(201, dtype=torch.half), 201),
        outputs=(2,),
        expected=lambda x, y, *_: ((2 * x.float() + y.float()).half(),),
        tolerance=1e-3,
    ),
    Kernel(
        file="memory",
        name="bfloat16_gelu",
        arguments=lambda: (random(150).bfloat16(), unwritten(150, dtype=torch.bfloat16), 150),
        outputs=(1,),
        expected=lambda x, *_: (functional.gelu(x.float()).bfloat16(),),
        tolerance=1e-2,
    ),
    Kernel(
        file="memory",
        name="max_pool",
        arguments=lambda: (random(8, 30), unwritten(4, 15), 8, 30),
        outputs=(1,),
        expected=lambda x, *_: (functional.max_pool2d(x[None], 2)[0],),
    ),
    Kernel(
        file="memory",
        name="count_by_match",
        arguments=lambda: (integers(333, high=6), unwritten(6, dtype=torch.int32), 333, 6),
        outputs=(1,),
        expected=lambda keys, *_: (_count(keys, 6),),
    ),
    Kernel(
        file="memory",
        name="sum_under_lock",
        arguments=lambda: (
            random(5, 30).double(),
            unwritten(1, dtype=torch.float64),
            unwritten(1, dtype=torch.int32),
            5,
            30,
        ),
        outputs=(1,),
        expected=lambda x, *_: (x.sum()[None],),
        tolerance=1e-10,
    ),
    Kernel(
        file="cooperative",
        name="groups_block_sum",
        arguments=lambda: (random(3, 500), unwritten(3), 3, 500),
        outputs=(1,),
        expected=lambda x, *_: (x.sum(1),),
    ),
    Kernel(
        file="cooperative",
        name="groups_tile_softmax",
        arguments=lambda: (random(11, 19), unwritten(11, 19), 11, 19),
        outputs=(1,),
        expected=lambda x, *_: (x.softmax(1),),
    ),
    Kernel(
        file="cooperative",
        name="grid_two_phases",
        arguments=lambda: (random(1000), unwritten(1000), unwritten(1000), 1000),
        outputs=(2,),
        expected=lambda x, *_: (x.square() + x.square().flip(0),),
    ),
    Kernel(
        file="cooperative",
        name="warp_specialised",
        arguments=lambda: (random(5, 96), unwritten(96), 5),
        outputs=(1,),
        expected=lambda x, *_: (x.sum(0),),
    ),
    Kernel(
        file="cooperative",
        name="groups_aggregated",
        arguments=lambda: (
            integers(200, low=-10),
            unwritten(1, dtype=torch.int32),
            torch.full((200,), 99, dtype=torch.int32),
            200,
        ),
        outputs=(1, 2),
        # The order in which blocks come is open; sorted, there is one answer.
        expected=lambda x, *_: (
            (x >= 0).sum()[None].int(),
            functional.pad(x[x >= 0].sort().values, (0, int((x < 0).sum())), value=99),
        ),
    ),
    Kernel(
        file="random",
        name="random_normals",
        arguments=lambda: (unwritten(400), 1234, 400),
        outputs=(0,),
        expected=lambda *_: (_philox_normals(400, 1234),),
    ),
    Kernel(
        file="cooperative",
        name="persistent_queue",
        arguments=lambda: (integers(50), unwritten(50, dtype=torch.int32), 50),
        outputs=(1,),
        expected=lambda x, *_: (2 * x,),
    ),
    Kernel(
        file="cooperative",
        name="pipelined_copies",
        arguments=lambda: (random(4, 128), unwritten(32), 4),
        outputs=(1,),
        expected=lambda x, *_: (x.reshape(16, 32).sum(0),),
    ),
    Kernel(
        file="cooperative",
        name="cluster_sum",
        arguments=lambda: (random(500), unwritten(1), 500),
        outputs=(1,),
        expected=lambda x, *_: (x.sum()[None],),
    ),
)

# Results whose order is open.
UNORDERED = frozenset({"groups_aggregated"})

PLANTED: Sequence[Planted] = (
    Planted(name="no_guard", arguments=lambda: (random(100), unwritten(100), 100), reason="cuda:global-bounds"),
    Planted(name="before_start", arguments=lambda: (random(30), unwritten(30), 30), reason="cuda:global-bounds"),
    Planted(name="small_dynamic", arguments=lambda: (random(100), unwritten(100), 100), reason="cuda:shared-bounds"),
    Planted(name="too_many_components", arguments=lambda: (random(7), unwritten(7), 7), reason="cuda:array-bounds"),
    Planted(name="part_filled", arguments=lambda: (random(100), unwritten(1), 100), reason="cuda:uninitialized"),
    Planted(name="never_zeroed", arguments=lambda: (random(100), unwritten(1), 100), reason="cuda:uninitialized"),
    Planted(name="no_barrier", arguments=lambda: (random(64), unwritten(64)), reason="cuda:shared-race"),
    Planted(name="reused_array", arguments=lambda: (random(3, 128), unwritten(3), 3), reason="cuda:shared-race"),
    Planted(name="warp_synchronous", arguments=lambda: (random(64), unwritten(1)), reason="cuda:shared-race"),
    Planted(name="shared_total", arguments=lambda: (random(60), unwritten(1), 60), reason="cuda:global-race"),
    Planted(name="early_total", arguments=lambda: (random(64), unwritten(64)), reason="cuda:shared-race"),
    Planted(name="in_place", arguments=lambda: (random(60), 60), reason="cuda:global-race"),
    Planted(name="divergent_barriers", arguments=lambda: (random(64), unwritten(64)), reason="cuda:barrier"),
    Planted(name="part_of_a_warp", arguments=lambda: (random(48), unwritten(1)), reason="cuda:shuffle"),
    Planted(name="shuffle_in_branch", arguments=lambda: (random(32), unwritten(32)), reason="cuda:shuffle"),
    Planted(name="misaligned", arguments=lambda: (random(64), unwritten(8), 1), reason="cuda:misaligned"),
    Planted(name="uneven_loop", arguments=lambda: (random(96), unwritten(96), 96), reason="cuda:barrier"),
    Planted(name="asserted", arguments=lambda: (random(32), unwritten(32), 33), reason="cuda:assert"),
    Planted(name="early_cluster", file="cooperative", arguments=lambda: (random(500), unwritten(1), 500), reason="cuda:barrier"),
    Planted(name="bounds", file="language", arguments=lambda: (unwritten(96),), reason="cuda:launch"),
    Planted(name="document_reused", file="documents", arguments=_mixture, reason="cuda:shared-race"),
    Planted(name="document_odd_block", file="documents", arguments=_mixture, reason="cuda:shuffle"),
    Planted(name="document_five", file="documents", arguments=_mixture, reason="cuda:array-bounds"),
    Planted(
        name="document_decoder",
        file="documents",
        arguments=lambda: (random(100), random(2000), unwritten(3)),
        reason="cuda:shared-race",
    ),
)
