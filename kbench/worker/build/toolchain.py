"""Which compilers, flags and architecture does this machine build with?

The flags come from torch itself: its own writer of build.ninja is asked, and read back. So they are
those of the plain way in every version of torch, whatever it adds or drops.
"""

from __future__ import annotations

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
from collections.abc import Callable, Iterable, Iterator, Mapping
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
# One processor of /proc/cpuinfo is some 2,000 characters.
_PROCESSOR_CHARACTERS = 8192
# What the compilers and torch's writer of their calls read from the environment at each build. CUDA_HOME is not
# among it: torch reads that once, and `_find_cuda_home` looks closer.
VARIABLES = (
    "CXX",
    "CC",
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
)
_AT_START = ("CUDA_HOME", "CUDA_PATH", "CUDA_INC_PATH", "CUDNN_HOME", "CUDNN_PATH")
_SEARCHED = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
# torch's writer reads these from its module and the environment, so one call at a time may set them.
_torch_lock = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """The tools at hand. `identity` changes with anything that makes another object of the same source."""

    include: Path
    cuda_home: Path | None
    identity: str

    @property
    def builds_cuda(self) -> bool:
        """Whether CUDA sources can be built: nvcc and a CUDA build of torch are there."""
        return self.cuda_home is not None and torch.version.cuda is not None


@functools.cache
def current() -> Toolchain:
    """Look for the tools, once in a process; starts no program and touches no GPU: a compiler's identity is its file."""
    cuda_home = _find_cuda_home() if torch.version.cuda else None
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
        *(f"{name}={os.environ.get(name)}" for name in VARIABLES + _AT_START),
    ]
    return Toolchain(
        include=Path(torch.__file__).parent / "include",
        cuda_home=cuda_home,
        identity=hashlib.sha256("\0".join(facts).encode()).hexdigest(),
    )


def key(request: BuildRequest) -> str:
    """Name what this machine makes of a request."""
    chosen = [shutil.which(word) for _, _, value in map(_partitioned, request.environment) for word in value.split()]
    return request.key(" ".join([current().identity, *(_file_identity(program) for program in chosen if program)]))


def environment(request: BuildRequest) -> dict[str, str]:
    """This process's variables with those that the request changes.

    Raises:
        ValueError: it changes one that is no business of a build's.
    """
    found = dict(os.environ)
    for name, is_set, value in map(_partitioned, request.environment):
        if name not in VARIABLES:
            raise ValueError(f"`{name}` is no variable of a build")
        if is_set:
            found[name] = value
        else:
            found.pop(name, None)
    return found


def _partitioned(change: str) -> tuple[str, bool, str]:
    name, is_set, value = change.partition("=")
    return name, bool(is_set), value


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


def architectures_for(capabilities: Iterable[str]) -> str:
    """The compute capabilities of GPUs (`9.0`) in the form of TORCH_CUDA_ARCH_LIST; without any, those of an H100."""
    found = sorted({(int(major), int(minor)) for major, _, minor in (text.partition(".") for text in capabilities)})
    highest = max(_capabilities_of_torch(), default=(0, 0))
    # As torch does: a device newer than the compilers gets code that the driver can translate.
    names = [f"{min(c, highest)[0]}.{min(c, highest)[1]}{'+PTX' if c > highest else ''}" for c in found if highest > (0, 0)]
    return ";".join(dict.fromkeys(names)) or DEFAULT_ARCHITECTURE


def _capabilities_of_torch() -> list[tuple[int, int]]:
    flags = torch._C._cuda_getArchFlags() if hasattr(torch._C, "_cuda_getArchFlags") else None
    numbers = [int(number) for number in re.findall(r"sm_(\d+)", flags or "")]
    return [(number // 10, number % 10) for number in numbers]


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
    """Let torch's writer see this request's architectures, flags and variables, and the CUDA that was found."""
    tools = current()
    common = getattr(cpp_extension, "COMMON_NVCC_FLAGS", [])
    with _torch_lock:
        before = list(common), cpp_extension.CUDA_HOME, dict(os.environ)
        common[:] = request.cuda_flags
        cpp_extension.CUDA_HOME = str(tools.cuda_home) if tools.cuda_home else None
        # No ccache: its folder is not the build's to write, and the cache here is one.
        settings = {"TORCH_CUDA_ARCH_LIST": request.architectures or DEFAULT_ARCHITECTURE, "TORCH_NO_COMPILER_WRAPPER": "1"}
        _set_environment({**environment(request), **settings})
        try:
            yield
        finally:
            common[:], cpp_extension.CUDA_HOME = before[:2]
            _set_environment(before[2])


def _set_environment(variables: Mapping[str, str]) -> None:
    for name in set(os.environ) - set(variables):
        del os.environ[name]
    os.environ.update(variables)


def _call(function: Callable[..., Any], /, **arguments: Any) -> Any:
    """Call a function of torch's with those arguments that its version knows."""
    known = inspect.signature(function).parameters
    return function(**{name: value for name, value in arguments.items() if name in known})
