"""The CUDA runtime by ctypes: what kbench must reach without passing through patchable Python.

Bound before a candidate is loaded. Every call raises `CudaError` with the runtime's own words.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch

_IPC_HANDLE_BYTES = 64
_IPC_LAZY_PEER_ACCESS = 1
_DEVICE_TO_DEVICE = 3


class CudaError(RuntimeError):
    """A CUDA runtime call failed."""


class _IpcHandle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * _IPC_HANDLE_BYTES),)


@functools.cache
def library() -> Any:
    """The runtime library that torch has loaded.

    Raises:
        CudaError: this torch is no CUDA build, or its runtime cannot be found.
    """
    version = torch.version.cuda
    if version is None:
        raise CudaError("this torch is a CPU build")
    name = f"libcudart.so.{version.split('.')[0]}"
    try:
        runtime = ctypes.CDLL(name)
    except OSError as error:
        raise CudaError(f"cannot load {name}: {error}") from None
    runtime.cudaGetErrorString.restype = ctypes.c_char_p
    runtime.cudaEventElapsedTime.argtypes = (ctypes.POINTER(ctypes.c_float), ctypes.c_void_p, ctypes.c_void_p)
    runtime.cudaEventRecord.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    runtime.cudaEventQuery.argtypes = (ctypes.c_void_p,)
    runtime.cudaMemcpyAsync.argtypes = (
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_void_p,
    )
    runtime.cudaMemsetAsync.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p)
    runtime.cudaLaunchHostFunc.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    runtime.cudaMalloc.argtypes = (ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t)
    runtime.cudaFree.argtypes = (ctypes.c_void_p,)
    runtime.cudaIpcCloseMemHandle.argtypes = (ctypes.c_void_p,)
    runtime.cudaIpcGetMemHandle.argtypes = (ctypes.POINTER(_IpcHandle), ctypes.c_void_p)
    runtime.cudaIpcOpenMemHandle.argtypes = (ctypes.POINTER(ctypes.c_void_p), _IpcHandle, ctypes.c_uint)
    return runtime


def begin(device: torch.device) -> None:
    """Make this process's context on a device now; left to itself, the first use of the device would wait for it."""
    torch.cuda.set_device(device)
    torch.cuda.init()
    check(library().cudaFree(None), "cudaFree")


def check(code: int, what: str) -> None:
    """Raise `CudaError` unless `code` is cudaSuccess."""
    if code:
        text = library().cudaGetErrorString(code).decode(errors="replace")
        raise CudaError(f"CUDA error: {text} ({what})")


def synchronize() -> None:
    """Wait for everything on the device, all streams included."""
    check(library().cudaDeviceSynchronize(), "cudaDeviceSynchronize")


def last_error() -> str:
    """Take the last error that a launch left behind; empty where there is none."""
    code = library().cudaGetLastError()
    return library().cudaGetErrorString(code).decode(errors="replace") if code else ""


def attribute(number: int, device: int) -> int:
    """One attribute of a device, by its number in driver_types.h; 0 where it has none."""
    value = ctypes.c_int()
    return 0 if library().cudaDeviceGetAttribute(ctypes.byref(value), number, device) else value.value


def malloc(n_bytes: int) -> int:
    """Allocate device memory outside torch's allocator."""
    pointer = ctypes.c_void_p()
    check(library().cudaMalloc(ctypes.byref(pointer), n_bytes), f"cudaMalloc of {n_bytes} bytes")
    return pointer.value or 0


def free(pointer: int) -> None:
    """Free what `malloc` gave."""
    check(library().cudaFree(pointer), "cudaFree")


def ipc_handle(pointer: int) -> bytes:
    """The handle by which another process opens an allocation of `malloc`."""
    handle = _IpcHandle()
    check(library().cudaIpcGetMemHandle(ctypes.byref(handle), pointer), "cudaIpcGetMemHandle")
    return bytes(handle)


def ipc_open(handle: bytes) -> int:
    """Open another process's allocation; its address here."""
    pointer = ctypes.c_void_p()
    raw = _IpcHandle.from_buffer_copy(handle)
    check(library().cudaIpcOpenMemHandle(ctypes.byref(pointer), raw, _IPC_LAZY_PEER_ACCESS), "cudaIpcOpenMemHandle")
    return pointer.value or 0


def ipc_close(pointer: int) -> None:
    """Close what `ipc_open` gave."""
    check(library().cudaIpcCloseMemHandle(pointer), "cudaIpcCloseMemHandle")


def memset(pointer: int, byte: int, n_bytes: int) -> None:
    """Fill device memory on the legacy default stream."""
    check(library().cudaMemsetAsync(pointer, byte, n_bytes, None), "cudaMemsetAsync")


def launch_host_function(function: int, argument: int) -> None:
    """Have the legacy default stream call a C function of one pointer, by its address, between what is queued before and after."""
    check(library().cudaLaunchHostFunc(None, function, argument), "cudaLaunchHostFunc")


class _DeviceMemory:
    """Lends an address to torch through the CUDA array interface."""

    def __init__(self, pointer: int, n_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (n_bytes,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
        }


def wrap(pointer: int, n_bytes: int, device: torch.device) -> torch.Tensor:
    """See device memory as a flat uint8 tensor that does not own it."""
    return torch.as_tensor(_DeviceMemory(pointer, n_bytes), device=device)
