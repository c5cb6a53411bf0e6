"""What a reference has to do: bytes and operations against what a person would count."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kbench.records import Case
from kbench.worker.reference import Reference
from kbench.worker.timing.work import Work, count_by_running, count_on_meta


def loaded(tmp_path: Path, forward: str, inputs: str, init: str = "pass", device: str = "meta") -> Reference:
    path = tmp_path / "reference.py"
    path.write_text(
        "import torch\n"
        "import torch.nn.functional as F\n"
        "class Model(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        f"        {init}\n"
        "    def forward(self, *args):\n"
        f"        {forward}\n"
        f"def get_inputs(): return [{inputs}]\n"
        "def get_init_inputs(): return []\n"
    )
    return Reference(path, torch.device(device), root_seed=1, label="task")


def counted(tmp_path: Path, forward: str, inputs: str, init: str = "pass") -> Work:
    work = count_on_meta(loaded(tmp_path, forward, inputs, init), Case())
    reference = loaded(tmp_path, forward, inputs, init, device="cpu")
    ran = count_by_running(reference.construct(Case(), []), reference.inputs(Case()))
    assert (ran.read_bytes, ran.written_bytes, dict(ran.flops)) == (work.read_bytes, work.written_bytes, dict(work.flops))
    return work


def test_a_chain_reads_its_input_once_and_writes_its_output_once(tmp_path: Path) -> None:
    work = counted(tmp_path, "x, = args; return (x * 2 + 1).relu()", "torch.randn(100, 10)")

    assert (work.read_bytes, work.written_bytes, work.flops) == (4000, 4000, {})
    assert work.eager_bytes == 3 * 8000
    assert work.elements == 3000


def test_a_linear_layer_reads_its_weights_and_multiplies(tmp_path: Path) -> None:
    work = counted(tmp_path, "return self.layer(*args)", "torch.randn(8, 16)", "self.layer = torch.nn.Linear(16, 32)")

    assert work.read_bytes == 4 * (8 * 16 + 16 * 32 + 32)
    assert work.written_bytes == 4 * 8 * 32
    assert work.flops == {"float32": 2 * 8 * 16 * 32}


def test_an_unused_parameter_and_an_unused_input_are_free(tmp_path: Path) -> None:
    work = counted(tmp_path, "return args[0] + 1", "torch.randn(10), torch.randn(10**6)", "self.spare = torch.nn.Linear(1000, 1000)")

    assert (work.read_bytes, work.written_bytes) == (40, 40)


def test_an_embedding_reads_the_rows_it_picks(tmp_path: Path) -> None:
    work = counted(tmp_path, "return self.table(*args)", "torch.randint(0, 1000, (64,))", "self.table = torch.nn.Embedding(1000, 32)")

    assert work.read_bytes == 64 * 8 + 64 * 32 * 4
    assert work.written_bytes == 64 * 32 * 4


def test_an_expanded_input_is_read_once(tmp_path: Path) -> None:
    assert counted(tmp_path, "return args[0].expand(50, 10) * 1.0", "torch.randn(10)").read_bytes == 40


def test_half_of_an_input_is_half(tmp_path: Path) -> None:
    assert counted(tmp_path, "return args[0][:50] * args[0][:50]", "torch.randn(100, 10)").read_bytes == 2000


def test_views_are_free(tmp_path: Path) -> None:
    work = counted(tmp_path, "return args[0].t().reshape(-1)[:5].unsqueeze(0)", "torch.randn(10, 1)")

    assert (work.read_bytes, work.written_bytes, work.eager_bytes) == (0, 0, 0)


def test_an_input_written_in_place_is_read_and_written(tmp_path: Path) -> None:
    work = counted(tmp_path, "return args[0].mul_(2)", "torch.randn(100)")

    assert (work.read_bytes, work.written_bytes) == (400, 400)


def test_attention_counts_both_of_its_products(tmp_path: Path) -> None:
    forward = "return F.scaled_dot_product_attention(*args)"
    work = counted(tmp_path, forward, "*(torch.randn(2, 4, 128, 64, dtype=torch.float16) for _ in range(3))")

    assert work.flops == {"float16": 2 * (2 * 2 * 4 * 128 * 128 * 64)}


def test_a_recurrent_layer_counts_every_step(tmp_path: Path) -> None:
    work = count_on_meta(loaded(tmp_path, "return self.rnn(*args)[0]", "torch.randn(5, 2, 8)", "self.rnn = torch.nn.LSTM(8, 16)"), Case())

    assert work.flops["float32"] == 5 * 2 * (2 * 2 * 4 * 16 * (8 + 16)) // 2


def test_what_needs_its_data_cannot_be_counted_by_shapes_and_is_by_running(tmp_path: Path) -> None:
    forward = "x, = args; return x[x > 0].sum()"
    with pytest.raises(Exception):  # noqa: B017 - torch's own, of several kinds
        count_on_meta(loaded(tmp_path, forward, "torch.randn(100)"), Case())
    reference = loaded(tmp_path, forward, "torch.randn(100)", device="cpu")

    assert count_by_running(reference.construct(Case(), []), reference.inputs(Case())).how == "run"


def test_shapes_alone_need_neither_memory_nor_time(tmp_path: Path) -> None:
    work = count_on_meta(loaded(tmp_path, "return args[0] @ args[1]", "torch.randn(10**6, 10**6), torch.randn(10**6, 10**6)"), Case())

    assert work.flops == {"float32": 2 * 10**18}
    assert work.read_bytes == 2 * 4 * 10**12
