"""What is asked of the builder and what it answers: plain data, to and from JSON, without torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self, get_type_hints

from kbench.records import Kernel

# Counts the changes of this package that make another object of the same request.
_FORMAT = 2
# Sources are written by hand or by a model; more than this is no source.
REQUEST_LIMIT_BYTES = 4 * 2**20
# What a person reads of a compiler's output; the first error comes before it in `failure`.
LOG_LIMIT_CHARACTERS = 32 * 2**10


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One translation unit; its language follows from the ending of `path`.

    `folder` is where its quoted includes are looked up, empty for a source that came as text.
    """

    path: str
    text: str
    folder: str = ""

    @property
    def is_cuda(self) -> bool:
        """Whether nvcc compiles it, by torch's own rule."""
        return self.path.endswith((".cu", ".cuh"))

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Read what `asdict` wrote."""
        return cls(**_checked(cls, data))


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """One call of `load_inline` or `load`, with the content of its sources.

    `cuda_flags` are torch's common flags for nvcc, from which some candidates strike a few.
    `architectures` is the value of TORCH_CUDA_ARCH_LIST, empty for the device at hand. `environment` has
    the variables of `toolchain.VARIABLES` that the candidate set, as NAME=VALUE, or unset, as NAME.
    """

    name: str
    sources: tuple[Source, ...]
    extra_cflags: tuple[str, ...] = ()
    extra_cuda_cflags: tuple[str, ...] = ()
    extra_ldflags: tuple[str, ...] = ()
    extra_include_paths: tuple[str, ...] = ()
    cuda_flags: tuple[str, ...] = ()
    architectures: str = ""
    environment: tuple[str, ...] = ()
    with_cuda: bool = False
    is_python_module: bool = True
    is_standalone: bool = False

    def to_json(self) -> dict[str, Any]:
        """The request as data for `json.dumps`."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Read a request that an untrusted process sent.

        Raises:
            ValueError: a field is missing, unknown or of another type, or the whole is too long.
        """
        values = _checked(cls, data)
        values["sources"] = tuple(Source.from_json(source) for source in values["sources"])
        request = cls(**values)
        if request.size_bytes > REQUEST_LIMIT_BYTES:
            raise ValueError(f"a build request of {request.size_bytes} bytes; at most {REQUEST_LIMIT_BYTES} are taken")
        return request

    @property
    def size_bytes(self) -> int:
        """The length of the request as JSON."""
        return len(json.dumps(self.to_json()))

    def key(self, toolchain: str) -> str:
        """Name the object that this request makes with the tools of identity `toolchain`."""
        content = json.dumps([_FORMAT, toolchain, self.to_json()], sort_keys=True)
        return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """How a build ended.

    `failure` is the first real error, `log` what the compilers printed, cut in its middle. `seconds`
    is what the build took when it was made, also where it was found in the cache (`cached`).
    `transient` failures (a killed compiler, no disk, no memory) are the machine's, not the source's,
    and are not kept. `refused` says why this machine cannot build such a thing at all. `headers` is `light` or `full`.
    """

    ok: bool
    key: str = ""
    path: str = ""
    log: str = ""
    failure: str = ""
    refused: str = ""
    headers: str = ""
    seconds: float = 0.0
    cached: bool = False
    transient: bool = False
    kernels: tuple[Kernel, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """The result as data for `json.dumps`."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Read what `to_json` wrote.

        Raises:
            ValueError: a field is missing, unknown or of another type.
        """
        values = _checked(cls, data)
        values["kernels"] = tuple(Kernel(**_checked(Kernel, kernel)) for kernel in values.get("kernels", ()))
        return cls(**values)


def _checked(cls: type, data: object) -> dict[str, Any]:
    """Take apart the JSON object of a flat dataclass; lists of objects are left to the caller."""
    if not isinstance(data, Mapping):
        raise ValueError(f"{cls.__name__}: an object is expected, not {type(data).__name__}")
    hints = get_type_hints(cls)
    unknown = set(data) - {item.name for item in fields(cls)}
    if unknown:
        raise ValueError(f"{cls.__name__}: unknown field `{min(map(str, unknown))}`")
    values: dict[str, Any] = {}
    for name, value in data.items():
        values[name] = _value(f"{cls.__name__}.{name}", value, hints[name])
    missing = [name for name in _required(cls) if name not in values]
    if missing:
        raise ValueError(f"{cls.__name__}: `{missing[0]}` is missing")
    return values


def _required(cls: type) -> list[str]:
    return [item.name for item in fields(cls) if repr(item.default) == repr(item.default_factory) == "<MISSING>"]


def _value(name: str, value: object, hint: object) -> Any:
    if hint is float and type(value) in {int, float}:
        return float(value)  # type: ignore[arg-type]
    if hint in {str, bool, int} and type(value) is hint:
        return value
    if str(hint).startswith("tuple[") and isinstance(value, list | tuple):
        if hint == tuple[str, ...] and not all(isinstance(item, str) for item in value):
            raise ValueError(f"{name}: a list of strings is expected")
        return tuple(value)
    raise ValueError(f"{name}: `{value!r:.60}` is not of the expected type")
