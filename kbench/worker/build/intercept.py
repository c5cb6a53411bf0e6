"""The candidate's half: `load_inline` and `load` become requests, and the answer is loaded.

Installed before the candidate is imported, so that its `from torch.utils.cpp_extension import
load_inline` gets ours. Signatures and meaning are torch's; where the build happens is not. What a
request cannot say goes to torch's own function, which builds in the candidate's scratch folder.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import os
import re
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils import cpp_extension

from kbench.protocol import Channel
from kbench.worker.build import cpp, toolchain
from kbench.worker.build.request import REQUEST_LIMIT_BYTES, BuildRequest, BuildResult, Source
from kbench.worker.cuda_on_cpu.features import UnsupportedFeatureError, unknown_word

Service = Callable[[BuildRequest], BuildResult]
# Makes of what is asked for what is to be built, for a target of its own.
Prepare = Callable[[BuildRequest], BuildRequest]

# How an error names a place in the caller's strings.
_PLACE = re.compile(r"(?P<name>(?:cpp|cuda)_sources\[\d+\]):(?P<line>\d+)")


class ExtensionBuildError(RuntimeError):
    """An extension did not build: the first error of the compiler's, and its log."""

    kbench_stage = "build"

    def __init__(self, result: BuildResult) -> None:
        super().__init__(result.refused or result.failure or "the build failed")
        self.kbench_log = result.log
        if result.refused:
            self.kbench_stage = "toolchain"


class _Unusual(Exception):
    """The call is one that only torch's own function can answer."""


def install_over(build_socket: socket.socket, *, prepare: Prepare | None = None) -> None:
    """Replace torch's functions by ours, which ask for builds over a socket; a candidate sees no cache."""
    channel = Channel(build_socket)
    # A candidate may build its extensions in several threads; there is one conversation.
    lock = threading.Lock()

    def service(request: BuildRequest) -> BuildResult:
        with lock:
            channel.send(request.to_json())
            return BuildResult.from_json(channel.receive())

    install(service, prepare=prepare)


def install(service: Service, *, prepare: Prepare | None = None) -> None:
    """Replace torch's functions by ours; `service` finds or builds what they are asked for."""
    loader = _Loader(service, prepare)
    for name, sources_of in (("load_inline", _inline_sources), ("load", _file_sources)):
        original = getattr(cpp_extension, name)
        setattr(cpp_extension, name, _with_signature_of(original, functools.partial(loader.load, original, sources_of)))


def _with_signature_of(original: Callable[..., Any], replacement: Callable[[dict[str, Any]], Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return replacement(bound.arguments)

    return call


class _Loader:
    def __init__(self, service: Service, prepare: Prepare | None) -> None:
        self._service = service
        self._prepare = prepare
        self._variables = _build_variables()

    def load(self, original: Callable[..., Any], sources_of: Callable[[Mapping[str, Any]], list[Source]], given: dict[str, Any]) -> Any:
        """Do what torch's function does with these arguments: build elsewhere, load the result here."""
        try:
            request = _request(given, sources_of(given), self._changed_variables())
        except _Unusual:
            if self._prepare is not None:
                raise UnsupportedFeatureError("a build that only torch's own function makes") from None
            return _by_torch(original, given)
        result = self._service(request if self._prepare is None else self._prepare(request))
        if not result.ok and self._prepare is not None and (word := unknown_word(result.failure)):
            place = _located(result.failure.partition(": error")[0], request, _callers_file())
            raise UnsupportedFeatureError(f"`{word}` is not known there ({place})")
        if not result.ok:
            raise ExtensionBuildError(replace(result, failure=_located(result.failure, request, _callers_file())))
        if given.get("verbose") and result.log:
            print(result.log)  # noqa: T201 - what torch's own function does
        return _loaded(request, result.path)

    def _changed_variables(self) -> list[str]:
        """What the builder, which has the variables that kbench was started with, must hear of."""
        now = _build_variables()
        changed = [name for name in toolchain.VARIABLES if now[name] != self._variables[name]]
        return [name if now[name] is None else f"{name}={now[name]}" for name in changed]


def _inline_sources(given: Mapping[str, Any]) -> list[Source]:
    """The files that torch's load_inline writes, with marks that have errors point into the caller's strings."""
    if given.get("sycl_sources"):
        raise _Unusual
    implicit = not given.get("no_implicit_headers")
    cpp_texts = ["#include <torch/extension.h>"] if implicit else []
    cpp_texts += _marked(_texts(given["cpp_sources"]), "cpp_sources")
    if given.get("functions") is not None:
        cpp_texts.append(_bindings(given["functions"], safe=given.get("with_pytorch_error_handling", True)))
    sources = [Source(path="main.cpp", text="\n".join(cpp_texts))]
    if cuda_texts := _texts(given.get("cuda_sources") or []):
        head = ["#include <torch/types.h>", "#include <cuda.h>", "#include <cuda_runtime.h>"] if implicit else []
        sources.append(Source(path="cuda.cu", text="\n".join(head + _marked(cuda_texts, "cuda_sources"))))
    return sources


def _file_sources(given: Mapping[str, Any]) -> list[Source]:
    """The files themselves, read with the rights of who asks."""
    paths = [given["sources"]] if isinstance(given["sources"], str) else given["sources"]
    if not isinstance(paths, list) or not all(isinstance(path, str | os.PathLike) for path in paths):
        raise _Unusual
    sources = []
    for path in map(os.path.abspath, paths):
        text = Path(path).read_bytes().decode("utf-8", "surrogateescape")
        quoted = path.replace("\\", "\\\\").replace('"', '\\"')
        sources.append(Source(path=path, text=f'#line 1 "{quoted}"\n{text}', folder=os.path.dirname(path)))
    return sources


def _request(given: Mapping[str, Any], sources: Sequence[Source], variables: Sequence[str]) -> BuildRequest:
    name, with_cuda = given["name"], given.get("with_cuda")
    is_module, is_standalone = bool(given.get("is_python_module", True)), bool(given.get("is_standalone", False))
    if not isinstance(name, str) or not re.fullmatch(r"\w[\w.-]{0,199}", name, re.ASCII):
        raise _Unusual
    if not sources or given.get("with_sycl") or torch.version.hip or (is_module and is_standalone):
        raise _Unusual
    if any(source.path.endswith(".sycl") for source in sources):
        raise _Unusual
    request = BuildRequest(
        name=name,
        sources=tuple(sources),
        extra_cflags=_flags(given.get("extra_cflags")),
        extra_cuda_cflags=_flags(given.get("extra_cuda_cflags")),
        extra_ldflags=_flags(given.get("extra_ldflags")),
        extra_include_paths=tuple(os.path.abspath(path) for path in _flags(given.get("extra_include_paths"))),
        cuda_flags=tuple(getattr(cpp_extension, "COMMON_NVCC_FLAGS", ())),
        architectures=os.environ.get("TORCH_CUDA_ARCH_LIST", ""),
        environment=tuple(variables),
        with_cuda=any(source.is_cuda for source in sources) if with_cuda is None else bool(with_cuda),
        is_python_module=is_module,
        is_standalone=is_standalone,
    )
    if request.size_bytes > REQUEST_LIMIT_BYTES:
        raise _Unusual
    return request


def _by_torch(original: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """Let torch build it in this process, into the folder that TORCH_EXTENSIONS_DIR names."""
    if (cuda_home := toolchain.current().cuda_home) is not None and "CUDA_HOME" not in os.environ:
        cpp_extension.CUDA_HOME = str(cuda_home)
    try:
        return original(**{**given, "build_directory": None})
    except RuntimeError as error:
        log = str(error)
        if not log.startswith("Error building extension"):
            raise
        raise ExtensionBuildError(BuildResult(ok=False, failure=cpp.first_error(log), log=log)) from None


def _build_variables() -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in toolchain.VARIABLES}


def _loaded(request: BuildRequest, path: str) -> Any:
    if request.is_standalone:
        return path
    if not request.is_python_module:
        torch.ops.load_library(path)
        return path
    spec = importlib.util.spec_from_file_location(request.name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _texts(sources: object) -> list[str]:
    texts = [sources] if isinstance(sources, str) else sources
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise _Unusual
    return texts


def _flags(flags: object) -> tuple[str, ...]:
    if flags is None:
        return ()
    if not isinstance(flags, list) or not all(isinstance(flag, str) for flag in flags):
        raise _Unusual
    return tuple(flags)


def _marked(texts: Sequence[str], name: str) -> list[str]:
    return [f'#line 1 "{name}[{index}]"\n{text}' for index, text in enumerate(texts)]


def _bindings(functions: object, *, safe: bool) -> str:
    names = [functions] if isinstance(functions, str) else functions
    documented = {name: name for name in names} if isinstance(names, list) else names
    if not isinstance(documented, dict):
        raise _Unusual
    lines = ['#line 1 "functions"', "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {"]
    for name, documentation in documented.items():
        bound = f"torch::wrap_pybind_function({name})" if safe else name
        lines.append(f'm.def("{name}", {bound}, "{documentation}");')
    return "\n".join([*lines, "}"])


def _callers_file() -> Path | None:
    """The file that called torch's function."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return Path(frame.f_code.co_filename) if frame is not None else None


def _located(failure: str, request: BuildRequest, file: Path | None) -> str:
    """Name the line of the caller's file in place of `cuda_sources[0]:12`, where that line is found there once."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines() if file is not None else []
    except (OSError, UnicodeDecodeError):
        lines = []
    texts = "\n".join(source.text for source in request.sources)

    def replaced(found: re.Match[str]) -> str:
        number = int(found["line"])
        piece = texts.partition(f'#line 1 "{found["name"]}"\n')[2].splitlines()
        wanted = piece[number - 1] if 0 < number <= len(piece) else ""
        places = [index for index, line in enumerate(lines, 1) if line == wanted]
        return f"{file.name}:{places[0]}" if file is not None and len(places) == 1 else found[0]

    return _PLACE.sub(replaced, failure)
