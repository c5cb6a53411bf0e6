"""How nvcc is called and what is read from its words; no nvcc runs here."""

from __future__ import annotations

from pathlib import Path

from kbench.records import Kernel
from kbench.worker.build import cuda
from kbench.worker.build.language import Commands, Unit
from kbench.worker.build.request import Source

COMMANDS = Commands(
    cxx=("c++",),
    cflags=("-O3",),
    ldflags=(),
    nvcc=("/cuda/bin/nvcc",),
    cuda_cflags=("-isystem", "/torch/include", "-gencode=arch=compute_90,code=sm_90", "--use_fast_math"),
)
# From nvcc 13.0 for sm_90 with `-Xptxas -v`.
LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z6spillsILi3EEvPf' for 'sm_90'
ptxas info    : Function properties for _Z6spillsILi3EEvPf
    64 bytes stack frame, 60 bytes spill stores, 56 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 64 bytes cumulative stack size, 4096 bytes smem, 128 bytes cmem[0]
ptxas info    : Compile time = 3.1 ms
a warning of the source's own
ptxas info    : Compiling entry function '_ZN12_GLOBAL__N_14leanEPKfS1_' for 'sm_90'
ptxas info    : Function properties for _ZN12_GLOBAL__N_14leanEPKfS1_
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
"""


def unit(folder: Path, *, source_folder: str = "") -> Unit:
    return Unit(
        source=Source(path="cuda.cu", text="", folder=source_folder),
        path=folder / "1_cuda.cu",
        object=folder / "1_cuda.1.o",
        dependencies=folder / "1_cuda.1.d",
        commands=COMMANDS,
    )


def test_torchs_flags_are_kept_in_order_and_nothing_is_compiled_for_another_device(tmp_path: Path) -> None:
    call = cuda.command(unit(tmp_path), light=None)
    start = call.index("-isystem")

    assert tuple(call[start : start + len(COMMANDS.cuda_cflags)]) == COMMANDS.cuda_cflags
    assert [word for word in call if "arch" in word] == ["-gencode=arch=compute_90,code=sm_90"]
    assert call[0] == "/cuda/bin/nvcc"
    assert call[-4:] == ["-c", str(tmp_path / "1_cuda.cu"), "-o", str(tmp_path / "1_cuda.1.o")]


def test_the_light_headers_come_before_torchs_own(tmp_path: Path) -> None:
    call = cuda.command(unit(tmp_path), light=tmp_path / "light")

    assert call.index(str(tmp_path / "light")) < call.index("/torch/include")
    # The halves run side by side, by a program that is passed as text.
    assert call[call.index("-c") + 2 : call.index("-c") + 4] == [str(tmp_path / "1_cuda.1.d"), "/cuda/bin/nvcc"]


def test_quoted_includes_are_looked_up_beside_the_source(tmp_path: Path) -> None:
    call = cuda.command(unit(tmp_path, source_folder="/kernels"), light=None)

    assert call[call.index("-iquote") + 2] == "/kernels"


def test_what_each_kernel_takes_is_read_from_the_assemblers_words() -> None:
    assert cuda.resources(LOG) == [
        Kernel(
            name="spills<3>",
            architecture="sm_90",
            registers=32,
            shared_bytes=4096,
            stack_bytes=64,
            spill_store_bytes=60,
            spill_load_bytes=56,
        ),
        Kernel(name="(anonymous namespace)::lean", architecture="sm_90", registers=8),
    ]


def test_the_log_is_the_one_that_nobody_asked_for_resources() -> None:
    assert cuda.without_resources(LOG) == "a warning of the source's own\n"


def test_the_first_error_is_found_whoever_said_it() -> None:
    assert cuda.first_error('cuda_sources[0](7): error: identifier "x" is undefined\n') == 'cuda_sources[0]:7: error: identifier "x" is undefined'
    assert cuda.first_error("a.h:3:1: error: 'y' was not declared\n") == "a.h:3: error: 'y' was not declared"
    assert cuda.first_error("ptxas error   : Entry function 'k' uses too much shared data\n").startswith("ptxas: error: Entry function")
