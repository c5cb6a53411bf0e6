"""What is read of compute-sanitizer's reports: recorded ones (scripts/record_sanitizer.py, an H200), and hostile ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbench import findings

RECORDS = Path(__file__).parent / "records"


def described(name: str) -> list[str]:
    return [finding.describe() for finding in findings.parse((RECORDS / name).read_bytes())]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "unmended.racecheck.xml",
            ["Race condition of read and write in decoder_loss_kernel at cuda.cu:80 against cuda.cu:87 (2 records)"],
        ),
        ("faulty.racecheck.xml", ["Race condition of write and read in no_barrier at cuda.cu:34 against cuda.cu:35 (2 records)"]),
        ("faulty.hazards.xml", ["Potential RAW hazard detected of write and read in no_barrier at cuda.cu:34 against cuda.cu:35 (2 records)"]),
        ("faulty.memcheck.xml", ["Invalid __global__ read of size 4 bytes is out of bounds in twice_unguarded at cuda.cu:11 (3 records)"]),
        ("faulty.initcheck.xml", ["Uninitialized __global__ memory read of size 4 bytes in add_to_uninitialised at cuda.cu:18 (3 records)"]),
        ("clean.memcheck.xml", []),
    ],
)
def test_recorded_findings_name_kernel_file_and_line(name: str, lines: list[str]) -> None:
    assert described(name) == lines


def report(records: str) -> bytes:
    return f'<?xml version="1.0" encoding="utf-8"?><ComputeSanitizerOutput>{records}</ComputeSanitizerOutput>'.encode()


def record(*modules: str, place: str = "") -> str:
    frames = "".join(f"<frame><pc>0x1</pc><module>{module}</module></frame>" for module in modules)
    where = f"<where><func>k</func>{place}<pc>0x10</pc></where>"
    return f"<record><kind>Initcheck</kind><what><text>A fault</text></what>{where}<hostStack>{frames}</hostStack></record>"


CUDART = "/opt/torch/.venv/lib/python3.12/site-packages/torch/lib/../../nvidia/cu13/lib/libcudart.so.13"
LINE = "<path>/x/cuda.cu</path><line>7</line>"


@pytest.mark.parametrize(
    ("modules", "place", "own"),
    [
        ((CUDART, "/home/user/.cache/kbench/builds/0f/own.so", "/venv/lib/libtorch_python.so"), "", True),
        ((CUDART, "/venv/site-packages/torch/lib/libtorch_cuda.so", "/home/user/.cache/kbench/builds/0f/own.so"), "", False),
        ((CUDART, "/venv/site-packages/nvidia/cublas/lib/libcublasLt.so.13"), LINE, False),
        (("/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/tmp/kbench-x/triton/ab/__triton_launcher.cpython-312-x86_64-linux-gnu.so"), "", True),
        ((), LINE, True),
        ((), "", False),
    ],
)
def test_only_the_candidates_own_kernels_count(modules: tuple[str, ...], place: str, own: bool) -> None:
    assert bool(findings.parse(report(record(*modules, place=place)))) is own


def test_a_fault_in_an_inlined_function_names_the_kernel_and_its_line() -> None:
    header = "/usr/local/cuda/targets/x86_64-linux/include/crt/sm_30_intrinsics.hpp"
    place = f"<path>{header}</path><line>110</line>"
    text = record(CUDART, "/kbench/own.so", place=place).replace("<func>k<", "<func>__syncwarp<")
    stack = "<frame><func>__device_stub__Z17barrier_of_othersPf</func></frame><frame><func>barrier_of_others</func></frame>"
    text = text.replace("</hostStack>", f"{stack}</hostStack>")
    (found,) = findings.parse(report(text))
    assert found.describe() == "A fault in barrier_of_others (__syncwarp) at sm_30_intrinsics.hpp:110"
    device = f"<deviceStack><frame><path>{header}</path><line>110</line></frame><frame>{LINE}</frame></deviceStack>"
    (found,) = findings.parse(report(text.replace("<hostStack>", f"{device}<hostStack>")))
    assert found.place == "cuda.cu:7"


def test_errors_of_calls_are_no_findings_about_a_kernel() -> None:
    assert findings.parse(report("<record><kind>Api</kind><what><text>cudaMalloc failed</text></what></record>")) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"========= COMPUTE-SANITIZER",
        b"<html/>",
        b"<ComputeSanitizerOutput><record>",
        b'<!DOCTYPE x [<!ENTITY a "b">]><ComputeSanitizerOutput>&a;</ComputeSanitizerOutput>',
        b"\xff\xfe\x00",
    ],
)
def test_what_is_no_report_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"report|XML"):
        findings.parse(data)


def test_names_are_cut_and_lines_that_are_no_numbers_left_out() -> None:
    (found,) = findings.parse(report(record(place="<path>/x/" + "a" * 5000 + "</path><line>7; rm -rf</line>").replace("<func>k<", f"<func>{'k' * 5000}<")))
    assert len(found.describe()) < 500
    assert found.place == ""
