"""The candidate's half: `load_inline` and `load` become requests, and the answer is loaded.

Installed before the candidate is imported, so that its `from torch.utils.cpp_extension import
load_inline` gets ours. Signatures and meaning are torch's; where the build happens is not.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import os
import re
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import cpp_extension

from kbench.protocol import Channel
from kbench.worker.build import toolchain
from kbench.worker.build.cache import Cache
from kbench.worker.build.request import BuildRequest, BuildResult, Source

Service = Callable[[BuildRequest], BuildResult]


class ExtensionBuildError(RuntimeError):
    """An extension did not build: the first error of the compiler's, and its log."""

    kbench_stage = "build"

    def __init__(self, result: BuildResult) -> None:
        super().__init__(result.refused or result.failure or "the build failed")
        self.kbench_log = result.log
        if result.refused:
            self.kbench_stage = "toolchain"


def install_over(build_socket: socket.socket, cache_folder: Path) -> None:
    """Replace torch's functions by ours, which ask for builds over a socket."""
    channel = Channel(build_socket)

    def service(request: BuildRequest) -> BuildResult:
        channel.send(request.to_json())
        return BuildResult.from_json(channel.receive())

    install(service, Cache(cache_folder))


def install(service: Service, cache: Cache) -> None:
    """Replace torch's functions by ours; `service` builds what is not in `cache`."""
    builder = _Builder(service, cache)
    for name, replacement in (("load_inline", builder.load_inline), ("load", builder.load)):
        original = getattr(cpp_extension, name)
        setattr(cpp_extension, name, _with_signature_of(original, replacement))


def _with_signature_of(original: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return replacement(original, bound.arguments)

    return call


class _Builder:
    def __init__(self, service: Service, cache: Cache) -> None:
        self._service = service
        self._cache = cache

    def load_inline(self, original: Callable[..., Any], given: Mapping[str, Any]) -> Any:
        """Do what torch's load_inline does: write out the same sources, build them elsewhere, load the result."""
        if given.get("sycl_sources") or given.get("with_sycl"):
            return original(**given)
        cpp_texts, cuda_texts = _texts(given["cpp_sources"]), _texts(given.get("cuda_sources"))
        implicit = not given.get("no_implicit_headers")
        cpp = (["#include <torch/extension.h>"] if implicit else []) + _marked(cpp_texts, "cpp_sources")
        functions = given.get("functions")
        if functions is not None:
            cpp.append(_bindings(functions, safe=given.get("with_pytorch_error_handling", True)))
        sources = [Source(path="main.cpp", text="\n".join(cpp))]
        if cuda_texts:
            head = ["#include <torch/types.h>", "#include <cuda.h>", "#include <cuda_runtime.h>"] if implicit else []
            sources.append(Source(path="cuda.cu", text="\n".join(head + _marked(cuda_texts, "cuda_sources"))))
        return self._load(given, sources)

    def load(self, original: Callable[..., Any], given: Mapping[str, Any]) -> Any:
        """Do what torch's load does; the sources are read here, with the rights of who asks."""
        paths = [given["sources"]] if isinstance(given["sources"], str) else list(given["sources"])
        if any(str(path).endswith(".sycl") for path in paths) or given.get("with_sycl"):
            return original(**given)
        sources = [
            Source(
                path=str(path),
                text=f'#line 1 "{Path(path).resolve()}"\n{Path(path).read_text(encoding="utf-8", errors="surrogateescape")}',
                folder=str(Path(path).resolve().parent),
            )
            for path in paths
        ]
        return self._load(given, sources)

    def _load(self, given: Mapping[str, Any], sources: Sequence[Source]) -> Any:
        with_cuda = given.get("with_cuda")
        request = BuildRequest(
            name=_module_name(given["name"]),
            sources=tuple(sources),
            extra_cflags=_flags(given.get("extra_cflags")),
            extra_cuda_cflags=_flags(given.get("extra_cuda_cflags")),
            extra_ldflags=_flags(given.get("extra_ldflags")),
            extra_include_paths=tuple(os.path.abspath(path) for path in _flags(given.get("extra_include_paths"))),
            cuda_flags=tuple(getattr(cpp_extension, "COMMON_NVCC_FLAGS", ())),
            architectures=os.environ.get("TORCH_CUDA_ARCH_LIST", ""),
            with_cuda=any(source.is_cuda for source in sources) if with_cuda is None else bool(with_cuda),
            is_python_module=bool(given.get("is_python_module", True)),
            is_standalone=bool(given.get("is_standalone", False)),
        )
        result = self._cache.lookup(toolchain.key(request)) or self._service(request)
        if not result.ok:
            raise ExtensionBuildError(result)
        return _loaded(request, Path(result.path))


def _loaded(request: BuildRequest, path: Path) -> Any:
    if request.is_standalone:
        return str(path)
    if not request.is_python_module:
        torch.ops.load_library(str(path))
        return str(path)
    spec = importlib.util.spec_from_file_location(request.name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[request.name] = module
    spec.loader.exec_module(module)
    return module


def _texts(sources: str | Sequence[str] | None) -> list[str]:
    return [sources] if isinstance(sources, str) else list(sources or ())


def _marked(texts: Sequence[str], name: str) -> list[str]:
    """Have errors point into the candidate's own strings."""
    return [f'#line 1 "{name}[{index}]"\n{text}' for index, text in enumerate(texts)]


def _bindings(functions: str | Sequence[str] | Mapping[str, str], *, safe: bool) -> str:
    named = {functions: functions} if isinstance(functions, str) else functions
    documented = dict(named) if isinstance(named, Mapping) else {function: function for function in named}
    lines = ['#line 1 "bindings of functions="', "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {"]
    for function, documentation in documented.items():
        bound = f"torch::wrap_pybind_function({function})" if safe else function
        lines.append(f'm.def("{function}", {bound}, "{documentation}");')
    return "\n".join([*lines, "}"])


def _flags(flags: str | Sequence[str] | None) -> tuple[str, ...]:
    return (flags,) if isinstance(flags, str) else tuple(map(str, flags or ()))


def _module_name(name: object) -> str:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_]\w{0,199}", name):
        raise ValueError(f"an extension's name must be a Python identifier, not `{str(name)[:60]}`")
    return name
