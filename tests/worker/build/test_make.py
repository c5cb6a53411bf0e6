"""Real builds of tiny libraries: kept by content, never made twice, errors where the source has them."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import multiprocessing
import os
from pathlib import Path

import pytest

from kbench.worker.build import BUILDERS, make
from kbench.worker.build.cache import Cache
from kbench.worker.build.make import build
from kbench.worker.build.request import BuildRequest, BuildResult, Source

REQUEST = BuildRequest(
    name="tiny",
    sources=(Source(path="main.cpp", text='#line 1 "cpp_sources[0]"\nextern "C" int answer() { return VALUE; }'),),
    extra_cflags=("-DVALUE=42",),
    is_python_module=False,
)


def with_text(text: str, **changes: object) -> BuildRequest:
    return dataclasses.replace(REQUEST, sources=(Source(path="main.cpp", text=text),), **changes)  # type: ignore[arg-type]


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


def test_a_variable_that_compilers_read_is_part_of_a_build(cache: Cache, tmp_path: Path) -> None:
    for value in (1, 2):
        (tmp_path / str(value)).mkdir()
        (tmp_path / str(value) / "chosen.h").write_text(f"#define VALUE {value}\n")
    text = '#include <chosen.h>\nextern "C" int answer() { return VALUE; }'
    made = [build(with_text(text, name="chosen", extra_cflags=(), environment=(f"CPATH={tmp_path / value}",)), cache, jobs=1) for value in ("1", "2")]

    assert [ctypes.CDLL(result.path).answer() for result in made] == [1, 2], made[0].log
    assert not any(result.cached for result in made)


def test_a_variable_that_is_no_business_of_a_builds_is_refused(cache: Cache) -> None:
    refused = build(dataclasses.replace(REQUEST, environment=("LD_PRELOAD=/somewhere.so",)), cache, jobs=1)

    assert not refused.ok
    assert "LD_PRELOAD" in refused.failure


def test_an_error_points_into_the_candidates_own_source_and_is_kept(cache: Cache) -> None:
    broken = with_text('#line 1 "cpp_sources[0]"\nint first;\nint second = nothing_of_the_kind;')
    first = build(broken, cache, jobs=1)
    again = build(broken, cache, jobs=1)

    assert not first.ok
    assert first.failure.startswith("cpp_sources[0]:2: error:")
    assert again.cached
    assert again.failure == first.failure
    assert "nothing_of_the_kind" in again.log


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


def test_a_failure_is_forgotten_when_the_header_at_fault_is_mended(cache: Cache, tmp_path: Path) -> None:
    header = tmp_path / "value.h"
    header.write_text("#error not yet\n")
    source = Source(path="main.cpp", text='#include "value.h"\nextern "C" int answer() { return VALUE; }', folder=str(tmp_path))
    request = dataclasses.replace(REQUEST, sources=(source,), extra_cflags=(), name="mended")
    before = build(request, cache, jobs=1)
    header.write_text("#define VALUE 3\n")

    assert not before.ok
    assert build(request, cache, jobs=1).ok


def test_a_missing_header_is_not_held_against_the_source(cache: Cache, tmp_path: Path) -> None:
    source = Source(path="main.cpp", text='#include "late.h"\n', folder=str(tmp_path))
    request = dataclasses.replace(REQUEST, sources=(source,), name="late")
    before = build(request, cache, jobs=1)
    (tmp_path / "late.h").write_text("\n")

    assert "late.h" in before.failure
    # The full headers would be read for nothing.
    assert before.headers == "light"
    assert build(request, cache, jobs=1).ok


def test_headers_of_the_machines_own_folders_are_watched_and_need_no_full_headers(cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPATH", str(tmp_path))
    (tmp_path / "of_the_machine.h").write_text("#define VALUE 1\n")
    request = with_text('#include <of_the_machine.h>\nextern "C" int answer() { return VALUE; }', extra_cflags=(), name="machine")
    first = build(request, cache, jobs=1)
    (tmp_path / "of_the_machine.h").write_text("#define VALUE 2\n")
    second = build(request, cache, jobs=1)

    assert first.ok, first.log
    assert first.headers == "light"
    assert not second.cached


@pytest.mark.parametrize("damage", ["no marker", "half a marker", "another object"])
def test_a_damaged_entry_is_built_again(cache: Cache, damage: str) -> None:
    request = dataclasses.replace(REQUEST, extra_cflags=("-DVALUE=5",))
    entry = Path(build(request, cache, jobs=1).path).parent
    marker = entry / "entry.json"
    if damage == "no marker":
        marker.unlink()
    elif damage == "half a marker":
        marker.write_text(marker.read_text()[:40])
    else:
        (entry / "tiny.so").write_bytes(b"\x7fELF, but not ours")

    again = build(request, cache, jobs=1)
    assert not again.cached
    assert ctypes.CDLL(again.path).answer() == 5


def _build_in_a_process(root: Path, results: multiprocessing.SimpleQueue[str]) -> None:
    result = build(dataclasses.replace(REQUEST, name="shared"), Cache(root), jobs=1)
    results.put(json.dumps(result.to_json()))


def test_two_processes_build_one_key_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    processes = [context.Process(target=_build_in_a_process, args=(tmp_path, results)) for _ in range(2)]
    for process in processes:
        process.start()
    made = [BuildResult.from_json(json.loads(results.get())) for _ in processes]
    for process in processes:
        process.join()

    assert all(result.ok for result in made)
    assert sorted(result.cached for result in made) == [False, True]


def _die_while_building(root: Path) -> None:
    cache = Cache(root)
    make.run_all = lambda *_, **__: os._exit(1)
    build(REQUEST, cache, jobs=1)


def test_a_killed_builder_leaves_nothing_that_hangs_the_next(tmp_path: Path) -> None:
    process = multiprocessing.get_context("fork").Process(target=_die_while_building, args=(tmp_path,))
    process.start()
    process.join()
    left = list((tmp_path / "builds" / "work").iterdir())

    assert process.exitcode != 0
    assert len(left) == 1
    assert build(REQUEST, Cache(tmp_path), jobs=1).ok
    assert not any((tmp_path / "builds" / "work").iterdir())


def _build_with(compiler: Path, root: Path) -> None:
    build(dataclasses.replace(REQUEST, environment=(f"CXX={compiler}",)), Cache(root), jobs=1)


def test_a_compiler_that_outlives_its_killed_builder_does_not_disturb_the_next(tmp_path: Path) -> None:
    for name in ("started", "released", "ended"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "first").touch()
    compiler = tmp_path / "c++"
    compiler.write_text(f"""#!/bin/sh
cd {tmp_path}
if test -e first; then
    rm first
    echo > started
    read word < released
    for word; do last=$word; done
    echo garbage > "$last"
    echo > ended
    exit 0
fi
exec c++ "$@"
""")
    compiler.chmod(0o755)
    process = multiprocessing.get_context("fork").Process(target=_build_with, args=(compiler, tmp_path / "cache"))
    process.start()
    (tmp_path / "started").read_bytes()
    process.kill()
    process.join()
    with Cache(tmp_path / "cache").lock("another key"):
        made = build(dataclasses.replace(REQUEST, environment=(f"CXX={compiler}",)), Cache(tmp_path / "cache"), jobs=1)
    (tmp_path / "released").write_bytes(b"\n")
    (tmp_path / "ended").read_bytes()

    assert made.ok, made.log
    assert ctypes.CDLL(made.path).answer() == 42
    assert not list((tmp_path / "cache/builds/work").iterdir())


def test_a_killed_compiler_is_no_verdict_on_the_source(tmp_path: Path) -> None:
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\nkill -9 $$\n")
    compiler.chmod(0o755)
    unit = make.Unit(
        source=REQUEST.sources[0],
        path=tmp_path / "a.cpp",
        object=tmp_path / "a.o",
        dependencies=tmp_path / "a.d",
        commands=make.Commands(cxx=(str(compiler),), cflags=(), ldflags=()),
    )
    (end,) = make.run_all([make.Call(BUILDERS["cpp"].command(unit, light=None), tmp_path)], jobs=1, timeout_s=60)

    assert end.is_transient


# What could mean one thing with some headers and another with all: overloads, what only argument-dependent look-up
# finds, functions that `torch` and `at` both have, macros.
MEANINGS = r"""
#include <torch/types.h>
#include <ATen/Parallel.h>
#include <sstream>
template <class T> int mean(T) { return 1; }
template <class T> int nothing_of_torchs(T) { return 1; }
static at::Tensor x() { return torch::arange(6, at::kFloat).reshape({2, 3}) - 2; }
extern "C" double meaning(int which) {
  using namespace at::indexing;
  std::ostringstream out;
  switch (which) {
    case 0: return abs(-1.5);
    case 1: return abs(-2) + std::abs(-2.25f);
    case 2: return std::is_same_v<decltype(mean(x())), at::Tensor>;
    case 3: return nothing_of_torchs(x());
    case 4: return torch::ones({2}, torch::requires_grad()).requires_grad();
    case 5: return torch::tensor({1.5, 2.5}).sum().item<double>();
    case 6: return x().index({Slice(0, 1), 2}).item<double>();
    case 7: return (1 - x() / 2 > 0).sum().item<double>();
    case 8: out << x() << at::kFloat << c10::IntArrayRef({1, 2}); return out.str().size();
    case 9: return static_cast<double>(c10::Half(0.1f)) + static_cast<double>(c10::BFloat16(0.1f));
    case 10: try { TORCH_CHECK(false, "told ", 1, x().sizes()); } catch (const c10::Error& error) { return error.msg().size(); }
    case 11: return AT_DISPATCH_FLOATING_TYPES(at::kDouble, "f", [&] { return double(sizeof(scalar_t)); });
    case 12: { double sum = 0; at::parallel_for(0, 4, 4, [&](int64_t from, int64_t to) { sum += to - from; }); return sum; }
    case 13: { float data[2] = {3, 4}; return torch::from_blob(data, {2}).norm().item<double>(); }
    case 14: { torch::NoGradGuard guard; return (torch::ones({1}, torch::requires_grad()) * 2).requires_grad(); }
    case 15: return at::empty_like(x(), x().options().dtype(at::kLong)).element_size() + x()[1][0].item<double>();
    case 16: { auto y = x(); y += 1; y.index_put_({0}, 7); return at::softmax(y, 1).max().item<double>(); }
    default: return c10::string_view(c10::toString(at::kFloat)).size() + (torch::kLong == at::kLong);
  }
}
"""
N_MEANINGS = 18


def test_what_the_light_headers_lack_comes_from_the_full_ones_and_both_mean_the_same(cache: Cache) -> None:
    """In one of the two a function's name is pasted together, so that no reader of the text finds it."""
    pasting = '\n#define PASTE(a, b) a##b\nextern "C" long pasted() { return at::PASTE(ey, e)(3).numel(); }\n'
    full = build(with_text(MEANINGS + pasting, name="pasted"), cache, jobs=2)
    light = build(with_text(MEANINGS, name="plain"), cache, jobs=2)

    assert (full.headers, light.headers) == ("full", "light"), (full.log, light.log)
    meanings = []
    for result in (full, light):
        meaning = ctypes.CDLL(result.path).meaning
        meaning.restype = ctypes.c_double
        meanings.append([meaning(which) for which in range(N_MEANINGS)])
    assert meanings[0] == meanings[1]
    assert meanings[1][:4] == [1.5, 4.25, 1.0, 1.0]
    assert ctypes.CDLL(full.path).pasted() == 9


def test_a_full_disk_or_a_folder_that_is_none_is_no_verdict_on_the_source(tmp_path: Path) -> None:
    (tmp_path / "builds").write_text("a file where the folder should be")
    result = build(REQUEST, Cache(tmp_path), jobs=1)

    assert not result.ok
    assert result.transient


def test_the_compilers_run_confined(tmp_path: Path) -> None:
    """The callback gets the work folder of the build in the compiler's own process."""
    seen = tmp_path / "seen"

    def confine(folder: Path) -> None:
        seen.write_text(f"{os.getpid()} {folder}")

    assert build(REQUEST, Cache(tmp_path), jobs=1, confine=confine).ok
    pid, folder = seen.read_text().split()
    assert int(pid) != os.getpid()
    assert Path(folder).parent.parent == tmp_path / "builds" / "work"
