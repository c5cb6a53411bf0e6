"""What arrives from an untrusted process is a build request, or it is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kbench.worker.build.request import REQUEST_LIMIT_BYTES, BuildRequest, Source

REQUEST = BuildRequest(name="a", sources=(Source(path="main.cpp", text="int f();"),), extra_cflags=("-O2",))


def test_a_request_survives_its_journey() -> None:
    assert BuildRequest.from_json(REQUEST.to_json()) == REQUEST


@pytest.mark.parametrize(
    "change",
    [
        {"name": 3},
        {"extra_cflags": "-O2"},
        {"extra_cflags": [1]},
        {"sources": [["main.cpp"]]},
        {"with_cuda": 1},
        {"unknown": True},
        {"sources": [{"path": "a.cpp", "text": "x" * REQUEST_LIMIT_BYTES}]},
    ],
)
def test_what_is_no_request_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        BuildRequest.from_json({**REQUEST.to_json(), **change})


def test_every_field_is_part_of_the_key() -> None:
    changes: dict[str, Any] = {
        "name": "b",
        "sources": (Source(path="main.cpp", text="int g();"),),
        "extra_cflags": ("-O3",),
        "extra_cuda_cflags": ("-O3",),
        "extra_ldflags": ("-lm",),
        "extra_include_paths": ("/include",),
        "cuda_flags": ("--expt-relaxed-constexpr",),
        "architectures": "9.0",
        "environment": ("CXX=clang++",),
        "with_cuda": True,
        "is_python_module": False,
        "is_standalone": True,
    }
    assert set(changes) == {field.name for field in dataclasses.fields(BuildRequest)}
    keys = {dataclasses.replace(REQUEST, **{name: value}).key("tools") for name, value in changes.items()}
    assert len({*keys, REQUEST.key("tools"), REQUEST.key("other tools")}) == len(changes) + 2
