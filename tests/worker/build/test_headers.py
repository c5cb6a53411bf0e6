"""Which headers stand in for torch's all-in-one ones; the real ones of the installed torch are read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kbench.worker.build.headers import light_headers

INCLUDE = Path(torch.__file__).parent / "include"


def test_a_function_brings_its_header_and_others_do_not() -> None:
    headers = light_headers(["at::Tensor f(at::Tensor x) { return at::softmax(x, 0); }"], INCLUDE)

    assert headers is not None
    assert "#include <ATen/ops/softmax.h>" in headers["kbench_light.h"]
    assert "ATen/ops/sigmoid.h" not in headers["kbench_light.h"]


@pytest.mark.parametrize(
    "text",
    [
        "int x; // softmax(x)",
        "/* at::softmax\n(x) */ int x;",
        "at::Tensor f(at::Tensor x) { return x.softmax(0); }",
        "at::Tensor f(at::Tensor* x) { return x->softmax(0); }",
        "int f(int softmax) { return softmax; }",
        "template <class T> T f(T x) { return std::softmax(x); }",
        "#define CHECK(x) if (!x.defined()) throw 1\nint softmax;",
    ],
)
def test_what_is_no_free_function_brings_no_header(text: str) -> None:
    headers = light_headers([text], INCLUDE)

    assert headers is not None
    assert "ATen/ops/softmax.h" not in headers["kbench_light.h"]


@pytest.mark.parametrize(
    "text",
    [
        "at::Tensor f(at::Tensor x) { return softmax (x, 0); }",
        "using at::softmax;",
        "auto f = &torch::softmax;",
        "#define CALL(f, x) f(x)\nat::Tensor g(at::Tensor x) { return CALL(softmax, x); }",
        "#define PASTE(a, b) a ## b\nat::Tensor g(at::Tensor x) { return PASTE(softmax, ); }",
        "#define TWICE(name) \\\n  name(x); name(x)\nvoid g() { TWICE(softmax); }",
        'const char* path = "//"; at::Tensor g(at::Tensor x) { return at::softmax(x, 0); }',
    ],
)
def test_what_may_be_a_free_function_brings_its_header(text: str) -> None:
    headers = light_headers([text], INCLUDE)

    assert headers is not None
    assert "#include <ATen/ops/softmax.h>" in headers["kbench_light.h"]


def test_the_all_in_one_headers_have_stand_ins() -> None:
    headers = light_headers([""], INCLUDE)

    assert headers is not None
    assert {"torch/extension.h", "torch/torch.h", "torch/types.h", "torch/all.h", "torch/python.h", "ATen/ATen.h"} <= set(headers)


def test_a_variant_brings_the_function_that_it_is_declared_with() -> None:
    headers = light_headers(["at::add_out(z, x, y)"], INCLUDE)

    assert headers is not None
    assert "#include <ATen/ops/add.h>" in headers["kbench_light.h"]


def test_a_factory_of_torchs_own_hides_that_of_aten() -> None:
    """`torch::empty` makes variables; `at::empty` alone would compile, and mean something else."""
    headers = light_headers(["torch::empty({2})"], INCLUDE)

    assert headers is not None
    assert "inline at::Tensor empty(" in headers["torch/types.h"]
    assert "inline at::Tensor ones(" not in headers["torch/types.h"]


def test_python_is_there_for_who_names_it() -> None:
    with_python, without = light_headers(["PYBIND11_MODULE(x, m) {}"], INCLUDE), light_headers(["int f();"], INCLUDE)

    assert with_python is not None
    assert without is not None
    assert "torch/python.h" in with_python["torch/extension.h"]
    assert "torch/python.h" not in without["torch/extension.h"]


def test_the_frontend_has_no_lighter_form() -> None:
    assert light_headers(["torch::nn::Linear layer(2, 3);"], INCLUDE) is None


def test_a_torch_that_looks_otherwise_has_no_lighter_form(tmp_path: Path) -> None:
    assert light_headers(["int f();"], tmp_path) is None


@pytest.mark.parametrize("text", ["c10::complex<float> z;", "AT_DISPATCH_ALL_TYPES_AND_COMPLEX(t, n, f);", "#include <cub/cub.cuh>"])
def test_complex_numbers_for_nvcc_are_torchs_own_where_they_may_be_used(text: str) -> None:
    headers = light_headers([text], INCLUDE)

    assert headers is not None
    assert not any(name.startswith("for_nvcc/") for name in headers)


def test_complex_numbers_that_nobody_names_come_without_thrust() -> None:
    headers = light_headers(["int f();"], INCLUDE)

    assert headers is not None
    (text,) = [text for name, text in headers.items() if name.startswith("for_nvcc/")]
    assert "#include <thrust" not in text
    assert "void exp(A&&...) = delete;" in text


def test_what_a_program_writes_brings_the_streams() -> None:
    plain, writes = light_headers(["int f();"], INCLUDE), light_headers(["void f() { std::cout << 1; }"], INCLUDE)

    assert plain is not None
    assert writes is not None
    assert "#include <iostream>" not in plain["kbench_light.h"]
    assert "#include <iostream>" in writes["kbench_light.h"]
