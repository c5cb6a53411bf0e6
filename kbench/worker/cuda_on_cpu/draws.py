"""What does torch draw on a device? Philox and torch's own way to spread it over a tensor, on the CPU.

A generator of a device is here a CPU generator that nothing else draws from. Its offset is kept in two words of
its state, against those of a fresh generator with its seed; `CUDAGeneratorImpl.h` does the same in C++.

Where `on_device` holds, the operators of torch that fill a tensor draw so, whoever calls them: `torch.randn`,
`torch.multinomial` and C++ alike. What else draws (dropout, integers) draws as on a CPU.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF
# Of torch's kernels that draw: threads a block, numbers a thread draws at a time, blocks an H200 runs at once.
_BLOCK, _UNROLL, _MOST_BLOCKS = 256, 4, 132 * (2048 // 256)
# Where a CPU generator's state has the second and the third word of its engine, one to eight bytes.
_WORDS = slice(32, 48)

# Numbers for one turn of all threads: four rows of words, one a thread, to four rows of values.
_Transform = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Turn:
    """One draw: where the generator stands, and how many threads share the elements."""

    seed: int
    offset: int
    threads: int


def offset_of(generator: torch.Generator) -> int:
    """How far a generator has come, in numbers a thread."""
    low, high = (_engine_words(generator.get_state()) ^ _fresh_words(generator)).tolist()
    return int(low) | int(high) << 32


def set_offset(generator: torch.Generator, offset: int) -> None:
    """Move a generator."""
    state = generator.get_state()
    words = _fresh_words(generator) ^ torch.tensor([offset & _MASK, offset >> 32])
    state[_WORDS] = words.view(torch.uint8)
    generator.set_state(state)


def normal(out: Tensor, mean: float, deviation: float, generator: torch.Generator) -> Tensor:
    """Fill a tensor as `normal_` does on a device."""
    return _fill(out, generator, lambda words: _normals(words) * deviation + mean)


def uniform(out: Tensor, low: float, high: float, generator: torch.Generator) -> Tensor:
    """Fill a tensor as `uniform_` does on a device: with the upper bound turned into the lower."""

    def transform(words: Tensor) -> Tensor:
        values = _uniforms(words) * (high - low) + low
        return torch.where(values == high, torch.full_like(values, low), values)

    return _fill(out, generator, transform)


def exponential(out: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """Fill a tensor as `exponential_` does on a device: never with 0."""
    half_step = torch.finfo(torch.float32).eps / 2

    def transform(words: Tensor) -> Tensor:
        values = _uniforms(words)
        logs = torch.where(values >= 1 - half_step, torch.full_like(values, -half_step), values.log())
        return logs * (-1 / rate)

    return _fill(out, generator, transform)


# torch.cuda.default_generators[0]; candidates in C++ learn of it through the environment.
default_generator = torch.Generator()
# The registrations that hold at present, innermost last.
_held: list[torch.library.Library] = []


@contextlib.contextmanager
def on_device() -> Iterator[None]:
    """Have torch fill tensors as on a device; without a generator, by that device's own."""
    _held.append(_registered())
    try:
        yield
    finally:
        _held.pop()._destroy()


@contextlib.contextmanager
def on_host() -> Iterator[None]:
    """Have torch fill tensors as on a CPU again, inside `on_device`."""
    if not _held:
        yield
        return
    _held[-1]._destroy()
    try:
        yield
    finally:
        _held[-1] = _registered()


def _registered() -> torch.library.Library:
    library = torch.library.Library("aten", "IMPL", "CPU")
    with warnings.catch_warnings():
        # That this replaces torch's own is the purpose.
        warnings.simplefilter("ignore")
        library.impl("normal_", _normal_)
        library.impl("uniform_", _uniform_)
        library.impl("exponential_", _exponential_)
    return library


# As torch's operators are called: `uniform_`'s first bound is called `from`, which no parameter can be.


def _normal_(out: Tensor, mean: float = 0, std: float = 1, *, generator: torch.Generator | None = None) -> Tensor:
    with torch._C.DisableTorchFunction():
        return normal(out, mean, std, generator or default_generator)


def _uniform_(out: Tensor, low: float = 0, to: float = 1, *, generator: torch.Generator | None = None, **bounds: float) -> Tensor:
    with torch._C.DisableTorchFunction():
        return uniform(out, bounds.get("from", low), to, generator or default_generator)


def _exponential_(out: Tensor, lambd: float = 1, *, generator: torch.Generator | None = None) -> Tensor:
    with torch._C.DisableTorchFunction():
        return exponential(out, lambd, generator or default_generator)


def _fill(out: Tensor, generator: torch.Generator, transform: _Transform) -> Tensor:
    count = out.numel()
    if count == 0:
        return out
    turn = _take(generator, count)
    turns = -(-count // (turn.threads * _UNROLL))
    values = torch.cat([transform(_words(turn, index)).flatten() for index in range(turns)])[:count]
    with torch.no_grad():
        # A dense tensor is filled in the order of its memory, whatever its strides.
        dense = out.as_strided((count,), (1,), out.storage_offset()) if _is_dense(out) else None
        out.copy_(values.view(out.shape)) if dense is None else dense.copy_(values)
    return out


def _take(generator: torch.Generator, count: int) -> Turn:
    threads = min(-(-count // _BLOCK), _MOST_BLOCKS) * _BLOCK
    offset = offset_of(generator)
    set_offset(generator, offset + ((count - 1) // (threads * _UNROLL) + 1) * _UNROLL)
    return Turn(generator.initial_seed(), offset, threads)


def _words(turn: Turn, index: int) -> Tensor:
    """Four rows of 32 random bits a thread, by Philox 4x32 of ten rounds."""
    counter = turn.offset // 4 + index
    threads = torch.arange(turn.threads)
    c = [torch.full_like(threads, counter & _MASK), torch.full_like(threads, counter >> 32), threads, torch.zeros_like(threads)]
    low, high = turn.seed & _MASK, turn.seed >> 32 & _MASK
    for _ in range(10):
        # A product of two words may pass the sign of an int64; its halves are right all the same.
        even, odd = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(odd >> 32 & _MASK) ^ c[1] ^ low, odd & _MASK, (even >> 32 & _MASK) ^ c[3] ^ high, even & _MASK]
        low, high = (low + 0x9E3779B9) & _MASK, (high + 0xBB67AE85) & _MASK
    return torch.stack(c)


def _uniforms(words: Tensor) -> Tensor:
    return words.to(torch.float32) * 2.0**-32 + 2.0**-33


def _normals(words: Tensor) -> Tensor:
    turn = torch.tensor(2.0**-32 * 6.2831855, dtype=torch.float32)
    radius = torch.sqrt(-2.0 * torch.log(_uniforms(words[::2])))
    angle = words[1::2].to(torch.float32) * turn + turn / 2
    return torch.stack([radius * torch.sin(angle), radius * torch.cos(angle)], 1).view(4, -1)


def _is_dense(tensor: Tensor) -> bool:
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1):
        if stride != expected:
            return False
        expected *= size
    return True


def _engine_words(state: Tensor) -> Tensor:
    return state[_WORDS].clone().view(torch.int64)


def _fresh_words(generator: torch.Generator) -> Tensor:
    return _engine_words(torch.Generator().manual_seed(generator.initial_seed()).get_state())
