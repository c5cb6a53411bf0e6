"""torch's `load_inline` and `load` as a candidate calls them, answered by a cache and a builder."""

from __future__ import annotations

import functools
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.utils import cpp_extension

from kbench.protocol import Channel, Closed
from kbench.worker import builder
from kbench.worker.build import intercept, make
from kbench.worker.build.cache import Cache
from kbench.worker.build.request import BuildRequest, BuildResult

# A module by hand: the same machinery as pybind11's in a fraction of the time.
MODULE = r"""
#include <Python.h>
static PyObject* answer(PyObject*, PyObject*) { return PyLong_FromLong(VALUE); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "by_hand", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_by_hand() { return PyModule_Create(&definition); }
"""


class Service:
    """Builds in this process, and counts."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self.results: list[BuildResult] = []

    def __call__(self, request: BuildRequest) -> BuildResult:
        self.results.append(make.build(request, self.cache, jobs=1))
        return self.results[-1]


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
    restored_afterwards(monkeypatch)
    service = Service(Cache(tmp_path / "cache"))
    intercept.install(service)
    return service


def restored_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("load_inline", "load"):
        monkeypatch.setattr(cpp_extension, name, getattr(cpp_extension, name))


def load_by_hand(value: int, **changes: Any) -> Any:
    arguments = {"cpp_sources": MODULE, "extra_cflags": [f"-DVALUE={value}"], "no_implicit_headers": True, **changes}
    return cpp_extension.load_inline("by_hand", **arguments)


def test_a_module_is_built_once_and_then_found(service: Service) -> None:
    assert load_by_hand(42).answer() == 42
    assert load_by_hand(42).answer() == 42
    assert [result.cached for result in service.results] == [False, True]


def test_two_modules_of_one_name_are_two_modules(service: Service) -> None:
    one, other = load_by_hand(1), load_by_hand(2)
    assert (one.answer(), other.answer()) == (1, 2)


def test_the_signature_is_torchs_own(service: Service) -> None:
    with pytest.raises(TypeError, match="no_such_argument"):
        load_by_hand(1, no_such_argument=True)
    assert not service.results


def test_an_error_names_the_line_of_the_callers_file(service: Service) -> None:
    source = """
    int first;
    int second = something_that_is_nowhere_else_declared;
    """
    here = Path(__file__).read_text().splitlines().index("    int second = something_that_is_nowhere_else_declared;") + 1
    with pytest.raises(RuntimeError) as raised:
        cpp_extension.load_inline("broken", cpp_sources=[source], no_implicit_headers=True)

    assert str(raised.value).startswith(f"test_intercept.py:{here}: error: ")
    assert getattr(raised.value, "kbench_stage") == "build"  # noqa: B009 - what the judge reads
    assert "cpp_sources[0]:3" in getattr(raised.value, "kbench_log")  # noqa: B009


def test_files_are_built_with_the_headers_beside_them(service: Service, tmp_path: Path) -> None:
    (tmp_path / "value.h").write_text("#define VALUE 6\n")
    (tmp_path / "module.cpp").write_text(f'#include "value.h"\n{MODULE}')
    module = cpp_extension.load("by_hand", [str(tmp_path / "module.cpp")])
    (tmp_path / "value.h").write_text("#define VALUE 7\n")
    cpp_extension.load("by_hand", str(tmp_path / "module.cpp"))

    assert module.answer() == 6
    assert [(result.ok, result.cached) for result in service.results] == [(True, False), (True, False)]


def test_an_error_in_a_file_names_it(service: Service, tmp_path: Path) -> None:
    (tmp_path / "broken.cpp").write_text("int first;\nint second = nothing;\n")
    with pytest.raises(RuntimeError, match=r"broken\.cpp:2: error: .*nothing"):
        cpp_extension.load("broken", [str(tmp_path / "broken.cpp")])


def test_a_library_and_a_program_are_given_by_their_paths(service: Service, tmp_path: Path) -> None:
    (tmp_path / "main.cpp").write_text("int main() { return 9; }\n")
    program = cpp_extension.load("program", [str(tmp_path / "main.cpp")], is_python_module=False, is_standalone=True)
    library = cpp_extension.load("library", [str(tmp_path / "main.cpp")], is_python_module=False)

    assert subprocess.run([program], check=False).returncode == 9
    assert library.endswith("library.so")


@pytest.mark.parametrize(
    "unusual",
    [
        {"name": "with a space"},
        {"functions": ("a", "tuple")},
        {"sycl_sources": ["int f();"]},
        {"extra_cflags": "-O3"},
        {"cpp_sources": [3]},
    ],
)
def test_what_a_request_cannot_say_is_left_to_torch(unusual: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    torchs: Callable[..., Any] = cpp_extension.load_inline

    @functools.wraps(torchs)
    def original(**given: Any) -> str:
        calls.append(given)
        return "built by torch"

    monkeypatch.setattr(cpp_extension, "load_inline", original)
    service = Service(Cache(tmp_path))
    intercept.install(service)
    given = {"name": "usual", "cpp_sources": "", "build_directory": "/elsewhere", **unusual}

    assert cpp_extension.load_inline(**given) == "built by torch"
    assert not service.results
    # The folder that a candidate names is not its own to write.
    assert calls[0]["build_directory"] is None


def test_a_compiler_chosen_by_the_candidate_is_asked_for(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/no/such/compiler")
    with pytest.raises(RuntimeError, match="/no/such/compiler"):
        load_by_hand(3)
    assert len(service.results) == 1


class Builder:
    """Serves builds over a socket as the engine does: a builder for each request."""

    def __init__(self, cache: Path) -> None:
        self.ours, self._theirs = socket.socketpair()
        self._cache = cache
        self.requests = 0
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        channel = Channel(self._theirs)
        while True:
            try:
                request = channel.receive()
            except Closed:
                self._theirs.close()
                return
            self.requests += 1
            one, other = socket.socketpair()
            asked = Channel(one)
            asked.send(request)
            builder.main({"cache": str(self._cache), "jobs": 1}, [other.detach()])
            channel.send(asked.receive())
            one.close()

    def close(self) -> None:
        self.ours.close()
        self._thread.join()


@pytest.fixture
def builder_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    restored_afterwards(monkeypatch)
    served = Builder(tmp_path / "cache")
    intercept.install_over(served.ours)
    yield served
    served.close()


def test_what_was_built_elsewhere_is_loaded_here(builder_process: Builder) -> None:
    module, again = load_by_hand(8), load_by_hand(8)

    assert module.answer() == again.answer() == 8
    assert builder_process.requests == 2


def test_a_failure_from_elsewhere_is_raised_here(builder_process: Builder) -> None:
    with pytest.raises(RuntimeError, match="nothing"):
        cpp_extension.load_inline("broken", cpp_sources=["int broken = nothing;"], no_implicit_headers=True)
