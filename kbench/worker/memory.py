"""Memory that two processes see: an arena for inputs, outputs and weights.

On a CPU it is a sealed memfd (a candidate cannot shrink it under the judge), on a GPU an allocation
of the judge's opened by CUDA IPC. Both sides see it as one flat uint8 tensor.
"""

from __future__ import annotations

import base64
import ctypes
import fcntl
import mmap
import os
import random
import secrets
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from kbench.worker import cudart

# linux/fcntl.h; the fcntl module has them only where it was built against new headers.
_F_ADD_SEALS = 1033
_F_SEAL_SHRINK_GROW_SEAL = 0x0001 | 0x0002 | 0x0004
# CUDA cuts smaller allocations out of blocks of this size, and a block can be opened by another process once only.
_CUDA_BLOCK_BYTES = 2 * 2**20
# Up to 1032 bytes a thread's own cache hands blocks out as they are. Source: malloc.c, tcache.
_FILLED_FROM_BYTES = 1088
# Python keeps objects up to 512 bytes in pools of their size, each a header and what it holds; malloc has the others.
_SMALL_SIZES = range(1, 480, 16)
_MOST_SMALL, _MOST_LARGE, _MOST_DICTS = 128, 128, 400
_LARGE_BYTES = (512, 9000)
# What lies in shared memory that nobody has written: every float dtype reads it as NaN, integers as -1.
POISON_BYTE = 0xFF
# A maximum and a comparison ignore NaN and -1, but not huge and negative huge numbers, which these are in every dtype (float16, too).
POISON_BYTES = (POISON_BYTE, 0x7B, 0xFB)


class Arena:
    """The judge's end: `memory` is a flat uint8 tensor of `n_bytes` on `device`, filled with poison."""

    def __init__(self, n_bytes: int, device: torch.device) -> None:
        self.n_bytes = max(n_bytes, mmap.PAGESIZE)
        self.device = device
        self.fd = -1
        if device.type == "cuda":
            self.n_bytes = -(-self.n_bytes // _CUDA_BLOCK_BYTES) * _CUDA_BLOCK_BYTES
            self._pointer = cudart.malloc(self.n_bytes)
            self.memory = cudart.wrap(self._pointer, self.n_bytes, device)
            self.poison()
        else:
            self.fd = os.memfd_create("kbench", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(self.fd, self.n_bytes)
            fcntl.fcntl(self.fd, _F_ADD_SEALS, _F_SEAL_SHRINK_GROW_SEAL)
            self.memory = _map(self.fd, self.n_bytes)

    def poison(self, byte: int = POISON_BYTE) -> None:
        """Fill all of it with one byte that nobody takes for a result."""
        self.memory.fill_(byte)

    def message(self) -> tuple[dict[str, Any], list[int]]:
        """What the other side needs to open it: a message and the descriptors to send along."""
        if self.device.type == "cuda":
            handle = base64.b64encode(cudart.ipc_handle(self._pointer)).decode()
            return {"bytes": self.n_bytes, "handle": handle}, []
        return {"bytes": self.n_bytes}, [self.fd]

    def close(self) -> None:
        """Give the memory back."""
        if self.device.type == "cuda":
            if self._pointer:
                cudart.free(self._pointer)
                self._pointer = 0
        elif self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def open_arena(message: dict[str, Any], fds: list[int], device: torch.device) -> torch.Tensor:
    """The worker's end of an arena: the same memory as a flat uint8 tensor."""
    n_bytes = int(message["bytes"])
    if "handle" in message:
        pointer = cudart.ipc_open(base64.b64decode(message["handle"]))
        return cudart.wrap(pointer, n_bytes, device)
    fd = fds.pop(0)
    memory = _map(fd, n_bytes)
    os.close(fd)
    return memory


def close_arena(memory: torch.Tensor) -> None:
    """Let go of what `open_arena` gave; nothing may use it any more."""
    if memory.device.type == "cuda":
        cudart.ipc_close(memory.data_ptr())


def _map(fd: int, n_bytes: int) -> torch.Tensor:
    return torch.frombuffer(mmap.mmap(fd, n_bytes), dtype=torch.uint8)


def set_malloc_fill(byte: int) -> None:
    """Have glibc fill what malloc hands out and takes back; 0 turns it off.

    torch's CPU allocator asks glibc, so memory that a kernel never wrote shows. Source: mallopt(3), M_PERTURB.
    """
    ctypes.CDLL(None).mallopt(-6, byte)


def written_past(tensors: list[torch.Tensor], fill: int) -> dict[int, StorageWeakRef]:
    """Which tensors someone wrote beyond the end of, if their memory is of this call: their storages, by index.

    Behind a tensor that a model keeps (a parameter, a table, a buffer that it returns in every call) lies what lay there
    before, which may be anything. So nothing is told of a storage that has not expired once the results were let go.
    """
    return {index: StorageWeakRef(tensor.untyped_storage()) for index, tensor in enumerate(tensors) if is_written_past(tensor, fill)}


def is_written_past(tensor: torch.Tensor, fill: int) -> bool:
    """Whether someone wrote beyond the end of a tensor, if it was allocated out of filled memory.

    malloc rounds up to 16 bytes less 8, and what it adds holds the fill, too. Where some of these bytes do and
    others do not, a store went too far. Small blocks of malloc's are not filled,
    and memory that is not torch's own is no block of it. On CUDA nobody can tell: a block that a temporary of the
    same call left behind is not filled again before the output takes it.
    """
    storage = tensor.untyped_storage()
    n_bytes = storage.nbytes()
    if not fill or tensor.device.type == "cuda" or n_bytes < _FILLED_FROM_BYTES or not storage.resizable():
        return False
    tail = list((ctypes.c_ubyte * (-(n_bytes + 8) % 16)).from_address(storage.data_ptr() + n_bytes))
    is_filled = [byte == fill ^ 0xFF for byte in tail]
    return any(is_filled) and not all(is_filled)


def keep_freed_memory() -> None:
    """Have glibc keep what is freed instead of giving it back to the system.

    Otherwise every large allocation takes its page faults again, in some processes and not in others:
    the same torch model was seen nine times slower for it. Source: mallopt(3), M_MMAP_THRESHOLD, M_TRIM_THRESHOLD.
    """
    libc = ctypes.CDLL(None)
    # Some versions of glibc refuse what is above half of their heap.
    libc.mallopt(-3, 1 << 30) or libc.mallopt(-3, 32 << 20)
    libc.mallopt(-1, ctypes.c_int(2**31 - 1))


def ballast() -> list[object]:
    """Make objects of random sizes; as long as they live, what a process makes later lies elsewhere than in another.

    All processes of a run are forks of one, in which the two sides of a comparison would differ in the same way every
    time: the same call of 7 us was 1.5 % faster or slower in sixteen fresh pairs of processes, and in the next run's others.
    """
    chance = random.Random(secrets.randbits(64))  # noqa: S311 - places, not keys
    small = [bytes(size) for size in _SMALL_SIZES for _ in range(chance.randrange(_MOST_SMALL))]
    large = [bytes(chance.randrange(*_LARGE_BYTES)) for _ in range(chance.randrange(_MOST_LARGE))]
    return [*small, *large, *({number: None for number in range(chance.randrange(1, 30))} for _ in range(chance.randrange(_MOST_DICTS)))]
