"""The speed of light: floors by hand, and what is faster than honest work can be."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from kbench.records import Case
from kbench.worker.evidence import Tolerance
from kbench.worker.reference import CaseReference, Reference
from kbench.worker.timing import ceilings
from kbench.worker.timing.ceilings import Ceilings
from kbench.worker.timing.light import impossible, needed_bytes, speed_of_light
from kbench.worker.timing.work import Work

GPU = Ceilings(bytes_s=4e12, bus_bytes_s=4.8e12, launch_s=3e-6, l2_bytes=60_000_000, flops={"float32": 50e12, "tf32": 390e12, "bfloat16": 760e12})

SLOW = dataclasses.replace(GPU, bytes_s=4e9, bus_bytes_s=4.8e9)


def work(read: int, flops: dict[str, int] | None = None) -> Work:
    return Work(read_bytes=read, written_bytes=0, eager_bytes=read, elements=0, flops=flops or {})


def of(tmp_path: Path, forward: str, inputs: str) -> CaseReference:
    path = tmp_path / "reference.py"
    path.write_text(
        f"import torch\nclass Model(torch.nn.Module):\n    def forward(self, *args):\n        {forward}\n"
        f"def get_inputs(): return [{inputs}]\ndef get_init_inputs(): return []\n"
    )
    tolerance = Tolerance(by_dtype={}, default=(1e-4, 1e-4), allow_nan=False)
    return CaseReference(Reference(path, torch.device("cpu"), root_seed=1, label="task"), Case(), trials=2, tolerance=tolerance)


def needed(tmp_path: Path, forward: str, inputs: str = "torch.randn(1000), torch.randn(1000)") -> int:
    reference = of(tmp_path, forward, inputs)
    return needed_bytes(reference, reference.reference.inputs(reference.case, "timed", 0))


def test_the_greater_floor_decides_and_names_the_bound() -> None:
    memory = speed_of_light(work(400_000_000), GPU)
    compute = speed_of_light(work(400_000_000, {"bfloat16": 760 * 10**9}), GPU)
    small = speed_of_light(work(4_000_000), GPU)

    assert (memory.seconds, memory.bound) == (pytest.approx(100e-6), "memory")
    assert (compute.seconds, compute.bound) == (pytest.approx(1e-3), "compute")
    assert (small.seconds, small.bound) == (pytest.approx(1e-6), "latency")


def test_products_of_several_dtypes_add_up_and_float32_may_use_three_of_tf32() -> None:
    found = speed_of_light(work(0, {"float32": 130 * 10**9, "bfloat16": 760 * 10**9}), GPU)

    assert found.seconds == pytest.approx(2e-3)


def test_a_dtype_that_nobody_measured_is_left_out() -> None:
    assert speed_of_light(work(400_000_000, {"float8_e4m3fn": 10**18}), GPU).bound == "memory"


def test_elements_that_move_an_output_are_needed(tmp_path: Path) -> None:
    assert needed(tmp_path, "return args[0] * args[1]") == pytest.approx(8000, rel=0.02)
    assert needed(tmp_path, "return args[0][:250] + 1") == pytest.approx(1000, rel=0.02)
    assert needed(tmp_path, "return (args[0].mean() + args[1].mean()).reshape(1)") == pytest.approx(8000, rel=0.05)


def test_elements_that_move_nothing_worth_a_tolerance_are_not(tmp_path: Path) -> None:
    assert needed(tmp_path, "return args[0] + 1e-9 * args[1]") == pytest.approx(4000, rel=0.05)
    assert needed(tmp_path, "return args[0] + 0 * args[1]") == pytest.approx(4000, rel=0.05)


def test_what_has_no_gradient_is_not_known_to_be_needed(tmp_path: Path) -> None:
    assert needed(tmp_path, "return args[0].argsort()") == 0
    assert needed(tmp_path, "return args[0] + 1", "torch.randint(0, 9, (1000,))") == 0


def test_a_time_below_what_the_bus_can_carry_is_impossible(tmp_path: Path) -> None:
    reference = of(tmp_path, "return args[0] + 1", "torch.randn(12_000)")
    args = reference.reference.inputs(reference.case, "timed", 0)

    # 48 kB at 4.8 GB/s.
    assert "must read 0.04" in impossible(reference, args, 5e-6, SLOW)
    assert impossible(reference, args, 10e-6, SLOW) == ""
    assert impossible(reference, args, 5e-6, dataclasses.replace(SLOW, bus_bytes_s=0.0)) == ""


def test_a_candidate_that_need_not_read_everything_may_be_faster(tmp_path: Path) -> None:
    reference = of(tmp_path, "return (args[0] + 1)[:1000]", "torch.randn(12_000)")
    args = reference.reference.inputs(reference.case, "timed", 0)

    assert impossible(reference, args, 3e-6, SLOW) == ""


def test_ceilings_are_measured_once_and_again_where_the_cache_is_spoilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def measure(_: torch.device) -> Ceilings:
        measured.append("once")
        return GPU

    properties = type("Properties", (), {"uuid": "1-2", "name": "A GPU"})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(ceilings, "measure", measure)
    device = torch.device("cuda", 0)

    assert [ceilings.of(device, tmp_path, "580.1") for _ in range(2)] == [GPU, GPU]
    assert len(measured) == 1
    (path,) = (tmp_path / "ceilings").iterdir()
    for spoilt in ("", "{}", "[1]", path.read_text().replace("4000000000000.0", "-1"), path.read_text().replace("4000000000000.0", '"x"')):
        path.write_text(spoilt)
        assert ceilings.of(device, tmp_path, "580.1") == GPU
    assert len(measured) == 6
    ceilings.of(device, tmp_path, "another driver")
    assert len(measured) == 7
