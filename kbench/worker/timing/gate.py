"""Semaphores in shared memory: by them the judge starts a side's work and hears of its end, and no message is in between."""

from __future__ import annotations

import ctypes
import mmap

import torch

from kbench.worker import cudart

_LIBC = ctypes.CDLL(None, use_errno=True)
for _name, _more in (("sem_init", (ctypes.c_int, ctypes.c_uint)), ("sem_post", ()), ("sem_wait", ()), ("sem_trywait", ())):
    getattr(_LIBC, _name).argtypes = (ctypes.c_void_p, *_more)
_init, _post, _wait, _try_wait = _LIBC.sem_init, _LIBC.sem_post, _LIBC.sem_wait, _LIBC.sem_trywait
# Each in a cache line of its own; glibc's sem_t has 32 bytes.
_STEP_BYTES = 64
BYTES = mmap.PAGESIZE

# The judge says that the inputs are there; the side that all its calls are queued; the side that all are done.
OPEN, QUEUED, DONE = range(3)


class Gate:
    """Three semaphores at the start of a shared page of host memory."""

    def __init__(self, page: torch.Tensor) -> None:
        # Kept alive for as long as its address is used.
        self._page = page
        self._address: int = page.data_ptr()

    def reset(self) -> None:
        """Close it; only while nobody waits at it."""
        for number in (OPEN, QUEUED, DONE):
            _init(self._at(number), 1, 0)

    def post(self, number: int) -> None:
        """Let one waiter through."""
        _post(self._at(number))

    def wait(self, number: int) -> None:
        """Wait until somebody posts."""
        while _wait(self._at(number)):
            pass

    def has_come(self, number: int) -> bool:
        """Take one post, if there is one."""
        return int(_try_wait(self._at(number))) == 0

    def queue_wait(self, number: int) -> None:
        """Have the legacy default stream wait until somebody posts: what is queued next begins only then."""
        cudart.launch_host_function(_address_of(_wait), self._at(number))

    def queue_post(self, number: int) -> None:
        """Have the legacy default stream post when all that was queued before is done."""
        cudart.launch_host_function(_address_of(_post), self._at(number))

    def _at(self, number: int) -> int:
        return self._address + number * _STEP_BYTES


def _address_of(function: object) -> int:
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)  # type: ignore[arg-type]
