"""nvcc's steps, read from what it says it would run; the programs here only note that they ran."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbench.worker.build import nvcc_steps

DRY_RUN = """
#$ _SPACE_=
#$ CICC_PATH={folder}
#$ INCLUDES="-Iinclude"
#$ {folder}/gcc -D__CUDA_ARCH__=900 -E -x c++ "k.cu" -o "k.cpp1.ii"
#$ {folder}/gcc -E -x c++ "k.cu" -o "k.cpp4.ii"
#$ -- Filter Dependencies -- > k.d
#$ {folder}/cudafe++ --orig_src_file_name "{folder}/k.cu" --gen_module_id_file --module_id_file_name "{folder}/k.id" "k.cpp4.ii"
#$ "$CICC_PATH/cicc" --module_id_file_name "{folder}/k.id" "k.cpp1.ii" -o "k.ptx"
#$ {folder}/ptxas -v "k.ptx" -o "k.cubin"
#$ {folder}/fatbinary "--image3=kind=elf,sm=90,file=k.cubin"
#$ rm k.fatbin
#$ {folder}/gcc -D__CUDA_ARCH__=900 -c -x c++ "k.cudafe1.cpp" -o "k.o"
"""


@pytest.fixture
def toolkit(tmp_path: Path) -> Path:
    """Programs that note their names, and fail where a file says so; nvcc prints the steps."""
    for program in ("gcc", "cudafe++", "cicc", "ptxas", "fatbinary"):
        note = f'#!/bin/sh\necho "{program} $*" >> {tmp_path}/ran\ntest ! -e {tmp_path}/{program}.fails\n'
        (tmp_path / program).write_text(note)
    (tmp_path / "nvcc").write_text(f'#!/bin/sh\necho "nvcc $*" >> {tmp_path}/ran\ncat {tmp_path}/dry >&2\n')
    for program in ("gcc", "cudafe++", "cicc", "ptxas", "fatbinary", "nvcc"):
        (tmp_path / program).chmod(0o755)
    (tmp_path / "k.cu").write_text("__global__ void k() {}\n")
    (tmp_path / "dry").write_text(DRY_RUN.format(folder=tmp_path))
    return tmp_path


def ran(toolkit: Path) -> list[str]:
    return (toolkit / "ran").read_text().splitlines()


def test_every_step_runs_and_the_halves_meet_in_the_last(toolkit: Path) -> None:
    code = nvcc_steps.main(["k.d", str(toolkit / "nvcc"), "k.cu"])
    steps = ran(toolkit)

    assert code == 0
    assert len(steps) == 8
    assert steps[-1].endswith("-o k.o")
    (preprocess,) = [step for step in steps if "k.cpp4.ii" in step and step.startswith("gcc")]
    assert preprocess.endswith("-MMD -MF k.d")
    assert (toolkit / "k.id").read_text().endswith(tuple("0123456789abcdef"))
    assert not any("--gen_module_id_file" in step for step in steps)


def test_the_name_of_the_module_follows_from_the_source(toolkit: Path) -> None:
    names = []
    for text in ("__global__ void k() {}", "__global__ void k() {}", "__global__ void other() {}"):
        (toolkit / "k.cu").write_text(text)
        nvcc_steps.main(["k.d", str(toolkit / "nvcc"), "k.cu"])
        names.append((toolkit / "k.id").read_text())

    assert names[0] == names[1] != names[2]


def test_a_step_that_fails_ends_it_with_its_status(toolkit: Path) -> None:
    (toolkit / "ptxas.fails").touch()
    assert nvcc_steps.main(["k.d", str(toolkit / "nvcc"), "k.cu"]) == 1
    assert not any(step.endswith("-o k.o") for step in ran(toolkit))


@pytest.mark.parametrize("change", ["two architectures", "a step that is not known", "one that is missing"])
def test_where_the_steps_are_others_nvcc_itself_runs(toolkit: Path, change: str) -> None:
    lines = DRY_RUN.format(folder=toolkit).splitlines()
    cicc = next(line for line in lines if "/cicc" in line)
    changed = {
        "two architectures": [*lines, cicc],
        "a step that is not known": [line.replace("cudafe++", "cudafe2") for line in lines],
        "one that is missing": [line for line in lines if line != cicc],
    }
    (toolkit / "dry").write_text("\n".join(changed[change]))
    nvcc_steps.main(["k.d", str(toolkit / "nvcc"), "k.cu"])

    assert ran(toolkit) == ["nvcc k.cu --dryrun", "nvcc k.cu"]
