"""Real builds of a tiny library: kept by content, never made twice, errors where the source has them."""

from __future__ import annotations

import ctypes
import dataclasses
from pathlib import Path

import pytest

from kbench.worker.build.cache import Cache
from kbench.worker.build.make import build
from kbench.worker.build.request import BuildRequest, Source

REQUEST = BuildRequest(
    name="tiny",
    sources=(Source(path="main.cpp", text='#line 1 "cpp_sources[0]"\nextern "C" int answer() { return VALUE; }'),),
    extra_cflags=("-DVALUE=42",),
    is_python_module=False,
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    return Cache(tmp_path_factory.mktemp("cache"))


def test_what_was_built_runs_and_is_never_built_twice(cache: Cache) -> None:
    first = build(REQUEST, cache, jobs=1)
    again = build(REQUEST, cache, jobs=1)

    assert first.ok, first.log
    assert not first.cached
    assert again.cached
    assert again.path == first.path
    assert ctypes.CDLL(first.path).answer() == 42


def test_another_flag_is_another_build(cache: Cache) -> None:
    other = build(dataclasses.replace(REQUEST, extra_cflags=("-DVALUE=7",)), cache, jobs=1)

    assert other.ok
    assert not other.cached
    assert ctypes.CDLL(other.path).answer() == 7


def test_an_error_points_into_the_candidates_own_source_and_is_kept(cache: Cache) -> None:
    text = '#line 1 "cpp_sources[0]"\nint first;\nint second = nothing_of_the_kind;'
    broken = dataclasses.replace(REQUEST, sources=(Source(path="main.cpp", text=text),))
    first = build(broken, cache, jobs=1)
    again = build(broken, cache, jobs=1)

    assert not first.ok
    assert first.failure.startswith("cpp_sources[0]:2: error:")
    assert again.cached
    assert again.failure == first.failure


def test_a_changed_header_is_another_build(cache: Cache, tmp_path: Path) -> None:
    header = tmp_path / "value.h"
    header.write_text("#define VALUE 1\n")
    source = Source(path="main.cpp", text='#include "value.h"\nextern "C" int answer() { return VALUE; }', folder=str(tmp_path))
    request = dataclasses.replace(REQUEST, sources=(source,), extra_cflags=(), name="with_header")
    first = build(request, cache, jobs=1)
    header.write_text("#define VALUE 2\n")
    second = build(request, cache, jobs=1)

    assert first.ok, first.log
    assert second.ok
    assert not second.cached


def test_an_entry_without_its_marker_is_built_again(cache: Cache) -> None:
    request = dataclasses.replace(REQUEST, extra_cflags=("-DVALUE=5",))
    first = build(request, cache, jobs=1)
    (Path(first.path).parent / "entry.json").unlink()

    assert not build(request, cache, jobs=1).cached
