"""What CUDA C++ becomes, which features are named as unknown, and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbench.worker.build.cuda_on_cpu import DEVICE_END, HOST_END
from kbench.worker.build.request import BuildRequest, Source
from kbench.worker.cuda_on_cpu import faults, features
from kbench.worker.cuda_on_cpu.prepare import prepare
from kbench.worker.cuda_on_cpu.translate import translate


@pytest.mark.parametrize(
    ("source", "feature", "line"),
    [
        ("#include <mma.h>\n", "tensor-core fragments", 1),
        ("#include <cub/cub.cuh>\n", "CUB", 1),
        ("#include <cuda/barrier>\n", "asynchronous barriers", 1),
        ("using namespace nvcuda;\n", "tensor-core fragments", 1),
        ('__global__ void k(int* p) {\n  asm volatile("mov.u32 %0, %laneid;" : "=r"(*p));\n}\n', "inline PTX", 2),
        ('#define LANE(x) asm("mov.u32 %0, %laneid;" : "=r"(x))\n__global__ void k(int* p) { LANE(*p); }\n', "inline PTX", 1),
        ("__global__ void k(cudaTextureObject_t t, float* y) {\n  *y = tex2D<float>(t, 0, 0);\n}\n", "textures", 1),
        ("__global__ void k(const __grid_constant__ CUtensorMap map) {}\n", "bulk copies", 1),
        ("#include <curand_kernel.h>\n__global__ void k(curandState* s) {}\n", "cuRAND's XORWOW generator", 2),
        ("__global__ void a() {}\n__global__ void b() {\n  a<<<1, 1>>>();\n}\n", "a kernel launched by a kernel", 3),
        ("void f(cudaGraph_t g) {}\n", "CUDA graphs", 1),
    ],
)
def test_an_unknown_feature_is_named_with_its_line(source: str, feature: str, line: int) -> None:
    found = translate(source, filename="k.cu").unsupported

    assert (found[0].feature, found[0].file, found[0].line) == (feature, "k.cu", line)


@pytest.mark.parametrize(
    "source",
    [
        '// wmma, CUtensorMap and asm("mov") are words of a comment\n__global__ void k() {}\n',
        'const char* text = "tex2D";\n',
        'void f() { asm volatile("" ::: "memory"); }\n',
        "#include <curand_kernel.h>\n__global__ void k(curandStatePhilox4_32_10_t* s) {}\n",
        "#include <cuda_pipeline_primitives.h>\n",
    ],
)
def test_what_only_looks_like_one_is_not(source: str) -> None:
    assert translate(source, filename="k.cu").unsupported == ()


SOURCE = """\
template <int n>
__global__ void __launch_bounds__(n * 32) k(const float* x, float* y) {
  __shared__ float a[n][2], b;
  extern __shared__ float c[];
  a[0][0] = x[threadIdx.x];
  y[blockIdx.x] = a[0][0];
}
void f(const float* x, float* y) {
  k<4>
      <<<dim3(1, 2), 128,
         0>>>(x, y);
}
"""


def test_every_line_stays_where_it_is() -> None:
    text = translate(SOURCE, filename="k.cu").text
    lines = text.partition('#line 1 "k.cu"\n')[2].splitlines()

    assert len(lines) == len(SOURCE.splitlines())
    for number, word in ((2, "void"), (3, "a"), (5, "x["), (7, "}"), (9, "k<4>"), (11, "(x, y);")):
        assert word in lines[number - 1]
    assert "<<<" not in text


def test_how_deep_an_expression_nests_does_not_matter() -> None:
    source = f"__global__ void k(int* p) {{ *p = {' + '.join(['threadIdx.x'] * 3000)}; }}\n"

    assert translate(source, filename="k.cu").text.count("thread_index()") == 3000


def request(*sources: Source, **more: object) -> BuildRequest:
    return BuildRequest(name="m", sources=sources, with_cuda=True, **more)  # type: ignore[arg-type]


def test_only_sources_with_device_code_are_watched() -> None:
    binding = Source(path="main.cpp", text="bool f(const at::Tensor& x) { return x.is_cuda(); }\n")
    prepared = prepare(request(binding, Source(path="cuda.cu", text=SOURCE))).request

    assert [source.path for source in prepared.sources][:2] == [f"cuda.cu{DEVICE_END}", f"main.cpp{HOST_END}"]
    assert "x.is_cpu()" in prepared.sources[1].text
    assert not prepared.with_cuda


def test_headers_of_the_candidates_own_are_translated_wherever_they_lie(tmp_path: Path) -> None:
    (tmp_path / "inc").mkdir()
    (tmp_path / "beside.cuh").write_text("#pragma once\n__device__ int beside() {\n  return threadIdx.x;\n}\n")
    (tmp_path / "inc" / "named.cuh").write_text('#include "beside.cuh"\n__device__ void named() { asm("exit;"); }\n')
    source = Source(path="k.cu", text='#include "beside.cuh"\n#include <named.cuh>\n__global__ void k() { named(); }\n', folder=str(tmp_path))
    prepared = prepare(request(source, extra_include_paths=(str(tmp_path / "inc"),)))

    assert "::kbench_cuda::thread_index()" in prepared.request.sources[0].text
    assert [(found.feature, found.file, found.line) for found in prepared.unsupported] == [("inline PTX", "named.cuh", 2)]


def test_flags_for_nvcc_are_kept_where_they_mean_something() -> None:
    prepared = prepare(
        request(Source(path="k.cu", text=SOURCE), extra_cuda_cflags=("-O3", "--use_fast_math", "-DN=4", "-I", "inc"), extra_ldflags=("-lcudart",))
    )

    assert prepared.request.extra_cflags == ("-DN=4", "-I", "inc")
    assert prepared.request.extra_ldflags == ()


def test_a_line_of_a_string_is_found_in_the_candidates_file() -> None:
    candidate = f'import torch\n\nA = """{SOURCE}"""\nB = r"""\nvoid other();\n"""\n'
    built = f'head\n#line 1 "cuda_sources[0]"\n{SOURCE}\n#line 1 "cuda_sources[1]"\n\nvoid other();\n'

    assert faults.line_in_candidate(candidate, [built], "cuda_sources[0]", 5, near="k<4>") == 7
    assert faults.line_in_candidate(candidate, [built], "cuda_sources[1]", 2) == candidate.splitlines().index("void other();") + 1
    assert faults.line_in_candidate(candidate, [built], "cuda_sources[2]", 2) is None


def test_only_a_known_reason_is_taken_from_a_message() -> None:
    known = 'KBENCH_CUDA_FAULT {"reason": "cuda:barrier", "file": "k.cu", "line": 3, "kernel": "k", "detail": "d"}'

    assert faults.parse(f"RuntimeError: {known}") == faults.Fault(reason="cuda:barrier", file="k.cu", line=3, kernel="k", detail="d")
    assert faults.parse(known.replace("cuda:barrier", "pass")) is None
    assert faults.parse("nothing of the kind") is None


@pytest.mark.parametrize(
    ("error", "word"),
    [
        ("cuda_sources[0]:7: error: ‘__nv_new_thing’ was not declared in this scope; did you mean ‘x’?", "__nv_new_thing"),
        ("cuda_sources[0]:7: error: '__nv_new_thing' was not declared in this scope", "__nv_new_thing"),
        ("k.cu:2: error: ‘getNewThing’ is not a member of ‘at::cuda’", "getNewThing"),
        ("k.cu:1: error: cuda/new.h: No such file or directory", "cuda/new.h"),
        ("k.cu:1: error: no matching function for call to ‘cudaNewCall(int)’", "cudaNewCall"),
        ("k.cu:3: error: ‘valeu’ was not declared in this scope; did you mean ‘value’?", ""),
        ("k.cu:3: error: expected ‘;’ before ‘}’ token", ""),
    ],
)
def test_a_name_of_cudas_that_is_lacking_here_is_no_fault_of_the_candidates(error: str, word: str) -> None:
    assert features.unknown_word(error) == word
