"""Which compilers, flags and architecture does this machine build with?

The flags come from torch itself: its own writer of build.ninja is asked, and read back. So they are
those of the plain way in every version of torch, whatever it adds or drops.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import inspect
import os
import platform
import re
import shlex
import shutil
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils import cpp_extension

from kbench.worker.build.language import Commands
from kbench.worker.build.request import BuildRequest

# Where there is no GPU, candidates are built for an H100 or H200.
DEFAULT_ARCHITECTURE = "9.0"
_MAX_DEVICES = 64
# One processor of /proc/cpuinfo is some 2,000 characters.
_PROCESSOR_CHARACTERS = 8192
# What the compilers read from the environment: a part of the identity of what they make.
VARIABLES = (
    "CXX",
    "CC",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_INC_PATH",
    "CUDNN_HOME",
    "CUDNN_PATH",
    "PYTORCH_NVCC",
    "NVCC_APPEND_FLAGS",
    "NVCC_PREPEND_FLAGS",
    "NVCC_CCBIN",
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "LIBRARY_PATH",
    "COMPILER_PATH",
    "GCC_EXEC_PREFIX",
    "SOURCE_DATE_EPOCH",
    "TORCH_NO_COMPILER_WRAPPER",
)
_SEARCHED = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
# torch's writer reads these from its module and the environment, so one call at a time may set them.
_torch_lock = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """The tools at hand. `identity` changes with anything that makes another object of the same source."""

    include: Path
    cuda_home: Path | None
    architectures: str
    identity: str

    @property
    def builds_cuda(self) -> bool:
        """Whether CUDA sources can be built: nvcc and a CUDA build of torch are there."""
        return self.cuda_home is not None and torch.version.cuda is not None


@functools.cache
def current() -> Toolchain:
    """Look for the tools, once in a process; children that are forked later inherit the answer.

    Starts no program and touches no GPU: a compiler's identity is its file.
    """
    cuda_home = _find_cuda_home() if torch.version.cuda else None
    architectures = device_architectures() if torch.version.cuda else ""
    files = [shutil.which(word) for word in shlex.split(cpp_extension.get_cxx_compiler())]
    files.append(os.path.join(os.path.dirname(torch.__file__), "version.py"))
    if cuda_home:
        parts = ("bin/nvcc", "bin/ptxas", "bin/cudafe++", "nvvm/bin/cicc", "include/cuda_runtime_api.h")
        # The last is what nvcc has compile the host's half.
        files += [*(str(cuda_home / part) for part in parts), shutil.which("gcc")]
    facts = [
        torch.__version__,
        str(torch.version.git_version),
        str(torch.version.cuda),
        str(torch.compiled_with_cxx11_abi()),
        cpp_extension.__file__,
        sys.version,
        str(sysconfig.get_config_var("SOABI")),
        " ".join(platform.libc_ver()),
        platform.machine(),
        # `-march=native` means this one.
        _processor(),
        str(cuda_home),
        *(_file_identity(file) for file in files),
        *(f"{name}={os.environ.get(name, '')}" for name in VARIABLES),
    ]
    return Toolchain(
        include=Path(torch.__file__).parent / "include",
        cuda_home=cuda_home,
        architectures=architectures,
        identity=hashlib.sha256("\0".join(facts).encode()).hexdigest(),
    )


def key(request: BuildRequest) -> str:
    """Name what this machine makes of a request."""
    tools = current()
    architectures = (request.architectures or tools.architectures) if request.with_cuda else ""
    return request.key(f"{tools.identity} {architectures}")


def commands(request: BuildRequest) -> Commands:
    """Ask torch how it would build this request.

    Raises:
        ValueError: TORCH_CUDA_ARCH_LIST names an unknown architecture.
        OSError: CUDA is asked for and there is no nvcc.
    """
    with tempfile.TemporaryDirectory(prefix="kbench-") as folder, _torch_settings(request):
        path = Path(folder) / "build.ninja"
        ldflags = _call(
            cpp_extension._prepare_ldflags,
            extra_ldflags=list(request.extra_ldflags),
            with_cuda=request.with_cuda,
            with_sycl=False,
            verbose=False,
            is_standalone=request.is_standalone,
        )
        _call(
            cpp_extension._write_ninja_file_to_build_library,
            path=str(path),
            name=request.name,
            sources=[source.path for source in request.sources],
            extra_cflags=list(request.extra_cflags),
            extra_cuda_cflags=list(request.extra_cuda_cflags),
            extra_sycl_cflags=[],
            extra_ldflags=ldflags,
            extra_include_paths=list(request.extra_include_paths),
            with_cuda=request.with_cuda,
            with_sycl=False,
            is_standalone=request.is_standalone,
        )
        variables = dict(re.findall(r"^(\w+) = (.*)$", path.read_text(), re.MULTILINE))
    return Commands(**{name: tuple(shlex.split(variables.get(name, ""))) for name in ("cxx", "cflags", "ldflags", "nvcc", "cuda_cflags")})


def searched_folders() -> list[str]:
    """The folders of headers that whoever started kbench adds to the compilers' own."""
    return [folder for name in _SEARCHED for folder in os.environ.get(name, "").split(os.pathsep) if os.path.isabs(folder)]


def device_architectures() -> str:
    """The compute capabilities of this machine's GPUs in the form of TORCH_CUDA_ARCH_LIST.

    Asked of the driver's management library: CUDA itself must stay untouched in a process that forks.
    """
    found = sorted(set(_capabilities()))
    highest = max(_capabilities_of_torch(), default=(0, 0))
    # As torch does: a device newer than the compilers gets code that the driver can translate.
    names = [f"{min(c, highest)[0]}.{min(c, highest)[1]}{'+PTX' if c > highest else ''}" for c in found if highest > (0, 0)]
    return ";".join(dict.fromkeys(names)) or DEFAULT_ARCHITECTURE


def _capabilities_of_torch() -> list[tuple[int, int]]:
    flags = torch._C._cuda_getArchFlags() if hasattr(torch._C, "_cuda_getArchFlags") else None
    numbers = [int(number) for number in re.findall(r"sm_(\d+)", flags or "")]
    return [(number // 10, number % 10) for number in numbers]


def _capabilities() -> Iterator[tuple[int, int]]:
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return
    if nvml.nvmlInit_v2() != 0:
        return
    try:
        count = ctypes.c_uint()
        nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        for index in range(min(count.value, _MAX_DEVICES)):
            device, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
            if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == 0:
                nvml.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor))
                yield major.value, minor.value
    finally:
        nvml.nvmlShutdown()


def _find_cuda_home() -> Path | None:
    """The folder that has both nvcc and the headers; a link to nvcc elsewhere on PATH is not enough."""
    named = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    if nvcc := shutil.which("nvcc"):
        named += [os.path.dirname(os.path.dirname(path)) for path in (nvcc, os.path.realpath(nvcc))]
    folders = [Path(name) for name in [*named, "/usr/local/cuda"] if name]
    folders += sorted(Path("/usr/local").glob("cuda-*"), reverse=True)
    for folder in folders:
        if (folder / "bin/nvcc").is_file() and (folder / "include/cuda_runtime.h").is_file():
            return folder
    return None


def _processor() -> str:
    """The first processor's model and features."""
    with suppress(OSError), open("/proc/cpuinfo") as file:
        text = file.read(_PROCESSOR_CHARACTERS).partition("\n\n")[0]
        return " ".join(re.findall(r"^(?:model name|flags|Features|CPU part)\s*: (.*)$", text, re.MULTILINE))
    return ""


def _file_identity(path: str | None) -> str:
    with suppress(OSError):
        status = os.stat(path or "")
        return f"{os.path.realpath(path or '')} {status.st_size} {status.st_mtime_ns}"
    return f"no {path}"


@contextmanager
def _torch_settings(request: BuildRequest) -> Iterator[None]:
    """Let torch's writer see this request's architectures and flags, and the CUDA that was found."""
    tools = current()
    common = getattr(cpp_extension, "COMMON_NVCC_FLAGS", [])
    with _torch_lock:
        before = list(common), cpp_extension.CUDA_HOME
        environment = {name: os.environ.get(name) for name in ("TORCH_CUDA_ARCH_LIST", "TORCH_NO_COMPILER_WRAPPER")}
        common[:] = request.cuda_flags
        cpp_extension.CUDA_HOME = str(tools.cuda_home) if tools.cuda_home else None
        os.environ["TORCH_CUDA_ARCH_LIST"] = request.architectures or tools.architectures
        # No ccache: its folder is not the build's to write, and the cache here is one.
        os.environ["TORCH_NO_COMPILER_WRAPPER"] = "1"
        try:
            yield
        finally:
            common[:], cpp_extension.CUDA_HOME = before
            for name, value in environment.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


def _call(function: Callable[..., Any], /, **arguments: Any) -> Any:
    """Call a function of torch's with those arguments that its version knows."""
    known = inspect.signature(function).parameters
    return function(**{name: value for name, value in arguments.items() if name in known})
